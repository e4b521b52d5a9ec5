// The pictures as tables: lines of code, stacks, the timeline, and memory by pool and stream.

import { groups } from "./colours.js";
import { showPane } from "./dock.js";
import { byId, bytesCell, make, makeTable, swatch } from "./dom.js";
import { shownTotal } from "./figures.js";
import { bytesText, countOf, countText, percentText, secondsText, spaced } from "./format.js";
import { onlyRows } from "./found.js";
import { buildTapes, sumOf } from "./map.js";
import { holders, sumsBy } from "./moment.js";
import { momentsOfColumns } from "./raster.js";
import { device, moment, setQuery, view } from "./view.js";

const TABLE_ROWS = 12;
let tablesTimer = 0;

/** Tables follow the moment after a delay, because they cost a layout of the page. */
export function drawTables() {
  clearTimeout(tablesTimer);
  tablesTimer = setTimeout(fillTables, 90);
}

export function fillTables() {
  if (moment?.m !== view.moment) return;
  fillLines();
  /** @type {[string, () => Node][]} */
  const folded = [
    ["timeline-table", timelineTable],
    ["map-table", mapTable],
    ["stack-table", stacksTable],
  ];
  for (const [id, table] of folded) {
    const details = byId(id);
    if (details.open) details.lastElementChild.replaceChildren(table());
  }
}

function fillLines() {
  const sums = holders(device, moment, onlyRows());
  const { data, stacks } = device;
  const whole = shownTotal();
  const shown = sums.slice(0, TABLE_ROWS);
  const rows = shown.map(({ line, category, bytes, blocks }) => {
    const text = stacks.lineLabel(line);
    const wanted = data.header.categories.indexOf(category);
    const kind = stacks.lineOfKind.findIndex((one, at) => one === line && data.category[at] === wanted);
    const name = make("span", { class: "mono" }, swatch(groups.colours[groups.groupOfKind[kind]]), text);
    const purpose = category === "other" ? "" : spaced(category);
    return [bytesCell(bytes), percentText(bytes, whole), countText(blocks), purpose, name];
  });
  const caption = `Lines of code with most memory ${device.momentText(view.moment)}, of ${bytesText(whole)} allocated; click one to highlight and list its memory`;
  const table = makeTable(caption, ["#bytes", "#share", "#blocks", "for", "line"], rows, (at) => {
    setQuery(`line:${device.stacks.lineLabel(shown[at].line)}`);
    showPane("search");
  });
  const rest = sums.slice(TABLE_ROWS);
  if (rest.length) {
    const bytes = rest.reduce((sum, line) => sum + line.bytes, 0);
    const blocks = rest.reduce((sum, line) => sum + line.blocks, 0);
    const numbers = [bytesCell(bytes), percentText(bytes, whole), countText(blocks)];
    const cells = [...numbers.map((one) => make("td", { class: "n" }, one)), make("td")];
    table.append(make("tfoot", {}, make("tr", {}, ...cells, make("td", {}, countOf(rest.length, "other row")))));
  }
  byId("lines").replaceChildren(table);
}

/** The timeline in numbers: twelve parts of the zoom, each at the moment with most allocated memory. */
function timelineTable() {
  const parts = 12;
  const moments = [...new Set(momentsOfColumns(parts))];
  const { allocated, reserved, pending } = device.totals;
  const rows = moments.map((m) => {
    const time = device.data.hasTime ? secondsText(device.data.time[m]) : "";
    const sums = [allocated[m], reserved[m], reserved[m] - allocated[m] - pending[m]];
    return [m ? device.entryText(m) : "start", time, ...sums.map((sum) => bytesCell(sum))];
  });
  const caption = "The zoom in twelve parts, each at the moment with most allocated memory";
  return makeTable(caption, ["#after entry", "#time", "#allocated", "#reserved", "#free"], rows);
}

const TAPE_SUMS = /** @type {const} */ (["size", "live", "pending", "releasable", "stranded"]);

function mapTable() {
  const { unit } = device.data.header;
  const rows = buildTapes().map(({ title, segments }) => [
    title,
    countText(segments.length),
    ...TAPE_SUMS.map((field) => bytesCell(sumOf(segments, field))),
    bytesCell(segments.reduce((most, segment) => Math.max(most, segment.largest), 0) * unit),
  ]);
  const sums = ["#reserved", "#allocated", "#waiting", "#releasable", "#stranded", "#largest free block"];
  const caption = "Device memory at this moment, by pool, stream and size";
  return makeTable(caption, ["pool and stream", "#segments", ...sums], rows);
}

function stacksTable() {
  const { data, stacks } = device;
  const sums = sumsBy(device, moment, data.node, onlyRows()).slice(0, TABLE_ROWS);
  const whole = shownTotal();
  const rows = sums.map(({ key, bytes, blocks }) => {
    const stack = make("pre", {}, stacks.stackText(key) || "no stack recorded");
    return [bytesCell(bytes), percentText(bytes, whole), countText(blocks), stack];
  });
  const caption = "Stacks with most memory at this moment, innermost frame first";
  return makeTable(caption, ["#bytes", "#share", "#blocks", "stack"], rows);
}

// The figures of the moment, the legend, and the summary of the highlight.

import { groups } from "./colours.js";
import { byId, make, swatch } from "./dom.js";
import { bytesText, countOf, countText, secondsText, shortPath } from "./format.js";
import { foundOverTime, onlyRows } from "./found.js";
import { MAX_LINES, lineColour, usedGroups } from "./groups.js";
import { queryLabel } from "./highlight.js";
import { figuresOf, sumsBy } from "./moment.js";
import { device, highlighted, moment, queryButton, view } from "./view.js";

/** @param {string} name @param {string} value @param {string} [note] */
function tile(name, value, note) {
  const muted = (/** @type {string} */ text) => make("span", { class: "muted" }, text);
  return make("div", { class: "tile" }, muted(name), make("b", {}, value), muted(note || " "));
}

export function drawFigures() {
  const figures = figuresOf(device, moment);
  const { allocated, reserved } = figures;
  const undrawn = device.data.undrawnAt(view.moment);
  const time = device.data.hasTime ? `, ${secondsText(device.data.time[view.moment])}` : "";
  const { entries } = device.data;
  const when = `${device.momentText(view.moment)} of ${countText(entries)}${time}`;
  byId("when").textContent = entries ? when : "at the snapshot; no history was recorded";
  const blocks = undrawn ? `and at most ${bytesText(undrawn)} left out` : countOf(figures.blocks, "block");
  const rounding = Math.max(0, allocated + figures.pending - figures.requested);
  const tiles = [
    tile("allocated", bytesText(allocated), blocks),
    tile("reserved", bytesText(reserved), countOf(figures.segments, "segment")),
    tile("free, stranded", bytesText(figures.stranded), "beside live blocks"),
    tile("free, releasable", bytesText(figures.releasable), "by empty_cache()"),
    tile("largest free block", bytesText(figures.largest_free_block), "of any pool and stream"),
  ];
  if (device.totals.hasPending) tiles.push(tile("waiting", bytesText(figures.pending), "freed, for another stream"));
  tiles.push(tile("rounding", bytesText(rounding), "beyond what was requested"));
  byId("tiles").replaceChildren(...tiles);
  drawLegend();
  drawHighlightNote();
}

/** Allocated bytes at the moment that the pictures show. */
export function shownTotal() {
  const over = view.only ? foundOverTime() : null;
  return (over?.bytes ?? device.totals.allocated)[view.moment];
}

/** Number of lines or variables in the legend. */
const LEGEND_GROUPS = 8;

/** The groups of the legend: those with memory at the moment, the largest first, then others that the timeline draws. @returns {{key: number, bytes: number}[]} */
function legendGroups() {
  const isCategory = groups === device.groups.category;
  const most = isCategory ? groups.names.length : Math.min(LEGEND_GROUPS, MAX_LINES);
  const live = sumsBy(device, moment, groups.groupOfKind, onlyRows())
    .filter(({ key }) => isCategory || key < MAX_LINES)
    .slice(0, most);
  const listed = new Set(live.map(({ key }) => key));
  if (live.length === most) return live;
  const over = view.only ? foundOverTime() : null;
  const drawn = over && [...over.kinds].map((kind) => groups.groupOfKind[kind]);
  const isDrawn = drawn ? usedGroups(groups.names, drawn) : groups.isUsed;
  const isOther = (/** @type {number} */ key) => isDrawn[key] && !listed.has(key) && (isCategory || key < MAX_LINES);
  const others = [...groups.names.keys()].filter(isOther).map((key) => ({ key, bytes: 0 }));
  return [...live, ...others].slice(0, most);
}

/** The legend: a button per group, with its bytes at the moment, that highlights the group. */
function drawLegend() {
  if (view.mode === "segment") {
    const { places } = device.segmentRows();
    const keys = places.map((name, at) => make("span", { class: "key" }, swatch(lineColour(at)), name));
    byId("legend").replaceChildren(...keys.slice(0, 12));
    return;
  }
  const whole = shownTotal();
  const sums = legendGroups();
  const items = sums.map(({ key, bytes }) => {
    const name = groups.names[key];
    const text = `${groups === device.groups.line ? shortLine(name) : name} ${bytesText(bytes)}`;
    const square = swatch(groups.colours[key], groups.isGuess?.[key]);
    return queryButton(groups.prefix + name, { class: "key", title: name }, square, text);
  });
  const rest = whole - sums.reduce((sum, { bytes }) => sum + bytes, 0);
  if (rest) items.push(make("span", { class: "key" }, `others ${bytesText(rest)}`));
  const waiting = device.totals.pending[view.moment];
  const square = make("i", { class: "swatch pending" });
  if (waiting) items.push(make("span", { class: "key" }, square, `waiting for another stream ${bytesText(waiting)}`));
  byId("legend").replaceChildren(...items);
  byId("legend").hidden = !items.length && !device.data.entries;
  keepLegendHigh();
}

/** The largest height of the legend, for the page, mode and width in `key`. */
const highestLegend = { key: "", height: 0 };

/** Keeps the legend as high as it ever was: the charts below do not move with the moment. */
function keepLegendHigh() {
  const legend = byId("legend");
  const key = `${view.page} ${view.mode} ${legend.clientWidth}`;
  legend.style.minHeight = "0";
  const height = Math.max(highestLegend.key === key ? highestLegend.height : 0, legend.offsetHeight);
  Object.assign(highestLegend, { key, height });
  legend.style.minHeight = `${height}px`;
}

/** @param {string} text `path/to/file.py:12 in name (..)` */
export function shortLine(text) {
  return shortPath(text.replace(/ \(called from .*/, ""));
}

function drawHighlightNote() {
  const note = byId("highlight-note");
  byId("highlight-peak").hidden = !highlighted;
  byId("highlight-clear").hidden = !view.query && !view.filter;
  note.textContent = "";
  if (!highlighted) return;
  let [bytes, blocks] = [0, 0];
  for (const row of moment.rows) {
    if (!highlighted[row] || device.data.freedAt[row] <= view.moment) continue;
    bytes += device.data.bytes[row];
    blocks += 1;
  }
  const total = highlighted.reduce((sum, one) => sum + one, 0);
  const what = queryLabel(view.query) ?? "highlighted";
  note.textContent = `${what}: ${bytesText(bytes)} in ${countOf(blocks, "block")}, ${countText(total)} in all`;
}

// The pictures as tables: by line of code, by stack, the course in numbers, and places by pool and stream.

const TABLE_ROWS = 12;
let tablesLater = 0;

/** Tables follow the moment a little later than pictures: they cost a layout of the page. */
function drawTables() {
  clearTimeout(tablesLater);
  tablesLater = setTimeout(fillTables, 90);
}

function fillTables() {
  if (moment?.m !== view.m) return;
  fillLines();
  /** @type {[string, () => Node][]} */
  const folded = [
    ["course-table", courseTable],
    ["map-table", placesTable],
    ["stack-table", stacksTable],
  ];
  for (const [id, table] of folded) {
    const details = byId(id);
    if (details.open) details.lastElementChild.replaceChildren(table());
  }
}

function fillLines() {
  const sums = sumsBy(device, moment, device.stacks.lineOfKind);
  const whole = device.totals.allocated[view.m];
  const colours = device.groups.line;
  const colourOf = new Map(colours.names.map((name, at) => [name, colours.colours[at]]));
  const shown = sums.slice(0, TABLE_ROWS);
  const rows = shown.map(({ key, bytes, blocks }) => {
    const text = device.stacks.textOfLine(key);
    const name = make("span", { class: "mono" }, swatch(colourOf.get(text) || CATEGORY_COLOURS.other), text);
    return [bytesText(bytes), percentText(bytes, whole), countText(blocks), name];
  });
  const caption = `Lines of code that hold most ${device.momentText(view.m)}, of ${bytesText(whole)} allocated; choose one to light its memory in every picture`;
  const table = makeTable(caption, ["#bytes", "#share", "#blocks", "line"], rows, (at) =>
    setQuery(`line:${device.stacks.textOfLine(shown[at].key)}`),
  );
  const rest = sums.slice(TABLE_ROWS);
  if (rest.length) {
    const bytes = rest.reduce((sum, one) => sum + one.bytes, 0);
    const blocks = rest.reduce((sum, one) => sum + one.blocks, 0);
    table.append(
      make(
        "tfoot",
        {},
        make(
          "tr",
          {},
          make("td", { class: "n" }, bytesText(bytes)),
          make("td", { class: "n" }, percentText(bytes, whole)),
          make("td", { class: "n" }, countText(blocks)),
          make("td", {}, countOf(rest.length, "other line")),
        ),
      ),
    );
  }
  byId("lines").replaceChildren(table);
}

/** Memory over time in numbers: twelve parts of the zoom, each at its busiest moment. */
function courseTable() {
  const parts = 12;
  const seen = [...new Set(momentsAcross(parts))];
  const { allocated, reserved, pending } = device.totals;
  const rows = seen.map((m) => {
    const entry = device.entryOf(m);
    const time = device.data.hasTime ? secondsText(device.data.time[m]) : "";
    return [
      entry === null ? "start" : countText(entry),
      time,
      bytesText(allocated[m]),
      bytesText(reserved[m]),
      bytesText(reserved[m] - allocated[m] - pending[m]),
    ];
  });
  return makeTable(
    "The zoom in twelve parts, each at the moment at which most is allocated",
    ["#after entry", "#time", "#allocated", "#reserved", "#free"],
    rows,
  );
}

function placesTable() {
  const { unit } = device.data.header;
  const rows = tapesOf().map(({ title, segments }) => [
    title,
    countText(segments.length),
    ...["size", "live", "pending", "releasable", "stranded"].map((what) =>
      bytesText(sumOf(segments, /** @type {any} */ (what))),
    ),
    bytesText(segments.reduce((most, segment) => Math.max(most, segment.largest), 0) * unit),
  ]);
  return makeTable(
    "Device memory at this moment, by pool, stream and size",
    ["place", "#segments", "#reserved", "#allocated", "#waiting", "#releasable", "#stranded", "#largest free block"],
    rows,
  );
}

function stacksTable() {
  const { data, stacks } = device;
  const sums = sumsBy(device, moment, data.node).slice(0, TABLE_ROWS);
  const whole = device.totals.allocated[view.m];
  const rows = sums.map(({ key, bytes, blocks }) => {
    const frames = stacks.framesOf(key).map((frame) => stacks.frameText(frame));
    return [
      bytesText(bytes),
      percentText(bytes, whole),
      countText(blocks),
      make("pre", {}, frames.join("\n") || "no stack recorded"),
    ];
  });
  return makeTable(
    "Stacks that hold most at this moment, innermost frame first",
    ["#bytes", "#share", "#blocks", "stack"],
    rows,
  );
}

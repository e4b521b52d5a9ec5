// The moment in numbers, the legend, and what is lit, in words.

/** @param {string} name @param {string} value @param {string} [note] */
function tile(name, value, note) {
  return make(
    "div",
    { class: "tile" },
    make("span", { class: "muted" }, name),
    make("b", {}, value),
    make("span", { class: "muted" }, note || " "),
  );
}

function drawFigures() {
  const figures = figuresOf(device, moment);
  const { allocated, reserved } = figures;
  const undrawn = device.data.undrawnAt(view.m);
  const time = device.data.hasTime ? `, ${secondsText(device.data.time[view.m])}` : "";
  const { entries } = device.data;
  byId("when").textContent = entries
    ? `${device.momentText(view.m)} of ${countText(entries)}${time}`
    : "at the snapshot; no history was recorded";
  const tiles = [
    tile(
      "allocated",
      bytesText(allocated),
      undrawn ? `and at most ${bytesText(undrawn)} left out` : countOf(figures.blocks, "block"),
    ),
    tile("reserved", bytesText(reserved), countOf(figures.segments, "segment")),
    tile("free, stranded", bytesText(figures.stranded), "beside live blocks"),
    tile("free, releasable", bytesText(figures.releasable), "by empty_cache()"),
    tile("largest free block", bytesText(figures.largest_free_block), "of any pool and stream"),
  ];
  if (device.totals.hasPending) tiles.push(tile("waiting", bytesText(figures.pending), "freed, for another stream"));
  tiles.push(
    tile(
      "rounding",
      bytesText(Math.max(0, allocated + figures.pending - figures.requested)),
      "beyond what was requested",
    ),
  );
  byId("tiles").replaceChildren(...tiles);
  drawLegend();
  drawLitNote();
}

/** What the colours mean, with the bytes of the moment; each lights its own. */
function drawLegend() {
  const isCategory = view.mode === "category";
  const whole = device.totals.allocated[view.m];
  const sums = sumsBy(device, moment, groups.of)
    .filter(({ key }) => isCategory || key < MOST_LINES)
    .slice(0, isCategory ? undefined : 8);
  const items = sums.map(({ key, bytes }) => {
    const name = groups.names[key];
    const query = isCategory ? `category:${name}` : `line:${name}`;
    const text = `${isCategory ? name : shortLine(name)} ${bytesText(bytes)}`;
    const on = view.q === query;
    return make(
      "button",
      { class: "key", "aria-pressed": String(on), title: name, onclick: () => setQuery(on ? "" : query) },
      swatch(groups.colours[key]),
      text,
    );
  });
  const rest = whole - sums.reduce((sum, { bytes }) => sum + bytes, 0);
  if (rest) items.push(make("span", { class: "key" }, `others ${bytesText(rest)}`));
  if (device.totals.pending[view.m])
    items.push(
      make(
        "span",
        { class: "key" },
        swatch(theme.pending),
        `waiting for another stream ${bytesText(device.totals.pending[view.m])}`,
      ),
    );
  byId("legend").replaceChildren(...items);
}

/** @param {string} text `path/to/file.py:12 in name (..)` */
function shortLine(text) {
  return text
    .replace(/ \(called from .*/, "")
    .split("/")
    .slice(-2)
    .join("/");
}

function drawLitNote() {
  const note = byId("lit-note");
  byId("lit-peak").hidden = !lit;
  byId("lit-clear").hidden = !view.q;
  if (!lit) {
    note.textContent = "";
    return;
  }
  let bytes = 0;
  let blocks = 0;
  for (const row of moment.rows) {
    if (!lit[row] || device.data.req[row] <= view.m) continue;
    bytes += device.data.bytes[row];
    blocks += 1;
  }
  let all = 0;
  for (const one of lit) all += one;
  note.textContent = `lit: ${bytesText(bytes)} in ${countOf(blocks, "block")} at this moment, ${countOf(all, "allocation")} in all`;
}

/** Goes to the moment at which most of what is lit is held. */
function gotoLitPeak() {
  if (!lit) return;
  const { change, changeAt, bytes, req, start, entries } = device.data;
  let [held, most, best] = [0, -1, view.m];
  for (let m = 0; m <= entries; m += 1) {
    for (let at = changeAt[m]; at < changeAt[m + 1]; at += 1) {
      const row = change[at] >>> 2;
      const what = change[at] & 3;
      if (!lit[row]) continue;
      if (what === BEGINS && req[row] !== m) held += bytes[row];
      else if (what === FREES && start[row] !== m) held -= bytes[row];
    }
    if (held > most) [most, best] = [held, m];
  }
  setMoment(best);
}

// What is looked at: one state, that every picture draws and every control changes.

/**
 * @typedef {object} View
 * @property {number} page
 * @property {number} m the moment
 * @property {number} a the zoom's first moment; may lie between two
 * @property {number} b where the zoom ends, at most entries + 1
 * @property {"category" | "line" | "each"} mode
 * @property {"entry" | "time"} x
 * @property {number} sel the allocation that is selected, or -1
 * @property {string} q what is lit
 * @property {number} root the node that fills the flame graph
 */

/** @type {View} */
const view = { page: 0, m: 0, a: 0, b: 1, mode: "category", x: "entry", sel: -1, q: "", root: 0 };
/** The device that is looked at. @type {Device} */
let device;
/** Which of its allocations are lit, or null. @type {Uint8Array | null} */
let lit = null;
/** The moment that is looked at. @type {Moment} */
let moment;

/** What can be drawn anew, in this order. @type {Record<string, () => void>} */
const pictures = {};
/** @type {Set<string>} */
const stale = new Set();
let frame = 0;
/** Milliseconds of the last redraws, by picture. @type {Record<string, number[]>} */
const timings = {};

/** Draws them before the next frame is shown. @param {...string} names */
function redraw(...names) {
  for (const name of names) stale.add(name);
  if (!frame) frame = requestAnimationFrame(drawStale);
}

function redrawAll() {
  redraw(...Object.keys(pictures));
}

function drawStale() {
  frame = 0;
  const start = performance.now();
  if (moment?.m !== view.m) moment = momentAt(device, view.m);
  for (const [name, draw] of Object.entries(pictures)) {
    if (!stale.delete(name)) continue;
    const before = performance.now();
    draw();
    note(name, performance.now() - before);
  }
  note("frame", performance.now() - start);
}

/** @param {string} name @param {number} ms */
function note(name, ms) {
  const list = (timings[name] ||= []);
  list.push(ms);
  if (list.length > 2000) list.splice(0, 1000);
}

/** Goes to a moment; the zoom follows if it would be left. @param {number} m @param {boolean} [follow] */
function setMoment(m, follow = true) {
  view.m = Math.max(0, Math.min(device.data.entries, Math.round(m)));
  const width = view.b - view.a;
  if (follow && (view.m < view.a || view.m >= view.b)) setZoom(view.m - width / 2, view.m + width / 2);
  redraw("overlay", "slider", "figures", "map", "flame", "tables", "hash");
}

/** @param {number} a @param {number} b */
function setZoom(a, b) {
  const all = device.data.entries + 1;
  const width = Math.max(Math.min(4, all), Math.min(all, b - a));
  const from = Math.max(0, Math.min(all - width, a));
  view.a = from;
  view.b = from + width;
  redraw("overview", "timeline", "overlay", "bands", "slider", "tables", "hash");
}

/** @param {View["mode"]} mode */
function setMode(mode) {
  view.mode = mode;
  recolour();
  redrawAll();
}

/** @param {View["x"]} x */
function setAxis(x) {
  view.x = device.data.hasTime ? x : "entry";
  redrawAll();
}

/** Lights up what the query says. @param {string} query */
function setQuery(query) {
  view.q = query;
  lit = litBy(device, query);
  recolour();
  redrawAll();
}

/** @param {number} row an allocation, or -1 */
function select(row) {
  view.sel = row >= 0 && row < device.data.allocations ? row : -1;
  redraw("overlay", "selection", "map", "hash");
}

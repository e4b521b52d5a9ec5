// The state of the view: every picture draws it, and every control changes it.

import { recolour } from "./colours.js";
import { showPane } from "./dock.js";
import { make } from "./dom.js";
import { highlightOf } from "./highlight.js";
import { momentAt } from "./moment.js";
/** @import { Device } from "./device.js" */
/** @import { Moment } from "./moment.js" */

/**
 * @typedef {object} View
 * @property {number} page
 * @property {number} moment
 * @property {number} start of the zoom; can be between two moments
 * @property {number} end of the zoom, at most entries + 1
 * @property {"category" | "line" | "variable" | "each" | "segment"} mode
 * @property {"entry" | "time"} axis
 * @property {number} selected allocation, or -1
 * @property {number} segment selected range of device memory, or -1
 * @property {string} query of the highlight
 * @property {string} filter see filter.js
 * @property {boolean} only whether the pictures show only what is highlighted
 * @property {number} from moment A of the comparison, or -1
 * @property {number} fromPage the page of A
 * @property {number} root node of the flame graph
 * @property {boolean} callers whether the flame graph starts from the lines that allocated
 * @property {string} pane of the dock
 */

/** Filled by `startView` when the first page is shown. */
export const view = /** @type {View} */ ({ page: 0 });
/** The shown device. @type {Device} */
export let device;
/** Whether each allocation is highlighted, or null if there is no query. @type {Uint8Array | null} */
export let highlighted = null;
/** The shown moment. @type {Moment} */
export let moment;

/** Functions that draw the parts of the page, in drawing order. @type {Record<string, () => void>} */
export const pictures = {};
/** @type {Set<string>} */
const stale = new Set();
let frame = 0;
/** Milliseconds of the last redraws, by part. @type {Record<string, number[]>} */
export const timings = {};

/** Draws the named parts before the next frame. @param {...string} names */
export function redraw(...names) {
  for (const name of names) stale.add(name);
  if (!frame) frame = requestAnimationFrame(drawStale);
}

/** @param {Device} shown */
export function setDevice(shown) {
  device = shown;
}

/** Computes the state at the view's moment. */
export function updateMoment() {
  moment = momentAt(device, view.moment);
}

export function redrawAll() {
  redraw(...Object.keys(pictures));
}

export function drawStale() {
  frame = 0;
  const start = performance.now();
  if (moment?.m !== view.moment) updateMoment();
  for (const [name, draw] of Object.entries(pictures)) {
    if (!stale.delete(name)) continue;
    const before = performance.now();
    draw();
    recordTiming(name, performance.now() - before);
  }
  recordTiming("frame", performance.now() - start);
}

/** @param {string} name @param {number} ms */
export function recordTiming(name, ms) {
  const list = (timings[name] ||= []);
  list.push(ms);
  if (list.length > 2000) list.splice(0, 1000);
}

/** Goes to a moment. With `follow` the zoom moves if the moment is outside. @param {number} position @param {boolean} [follow] */
export function setMoment(position, follow = true) {
  view.moment = Math.max(0, Math.min(device.data.entries, Math.round(position)));
  const width = view.end - view.start;
  if (follow && (view.moment < view.start || view.moment >= view.end))
    setZoom(view.moment - width / 2, view.moment + width / 2);
  redraw("result", "overlay", "slider", "figures", "entries", "compare", "both");
  redraw("found", "selection", "map", "flame", "tables", "hash");
}

/** @param {number} start @param {number} end */
export function setZoom(start, end) {
  const all = device.data.entries + 1;
  const width = Math.max(Math.min(4, all), Math.min(all, end - start));
  const from = Math.max(0, Math.min(all - width, start));
  view.start = from;
  view.end = from + width;
  redraw("overview", "timeline", "overlay", "bands", "slider", "tables", "hash");
}

/** @param {View["mode"]} mode */
export function setMode(mode) {
  view.mode = mode;
  recolour();
  redrawAll();
}

/** @param {View["axis"]} x */
export function setAxis(x) {
  view.axis = device.data.hasTime ? x : "entry";
  redrawAll();
}

/** Highlights what the query selects. @param {string} query */
export function setQuery(query) {
  view.query = query;
  updateHighlight();
}

/** A button that highlights what the query selects, and clears it again. @param {string} query @param {Record<string, any>} attributes @param {...(Node | string)} children */
export function queryButton(query, attributes, ...children) {
  const isOn = view.query === query;
  const onclick = () => setQuery(isOn ? "" : query);
  return make("button", { ...attributes, "aria-pressed": String(isOn), onclick }, ...children);
}

/** Restricts what is highlighted. @param {string} filter */
export function setFilter(filter) {
  view.filter = filter;
  updateHighlight();
}

export function updateHighlight() {
  highlighted = highlightOf(device, view);
  if (!highlighted) view.only = false;
  recolour();
  redrawAll();
}

/** @param {number} row an allocation, or -1 */
export function select(row) {
  view.selected = row >= 0 && row < device.data.allocations ? row : -1;
  if (view.selected >= 0) {
    view.segment = -1;
    showPane("selected");
  }
  redraw("overlay", "selection", "map", "hash");
}

/** @param {number} at a range of device memory, or -1 */
export function selectSegment(at) {
  view.segment = at >= 0 && at < device.data.segments ? at : -1;
  if (view.segment >= 0) {
    view.selected = -1;
    showPane("selected");
  }
  redraw("timeline", "overlay", "selection", "map", "hash");
}

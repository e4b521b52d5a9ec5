// The pane "Search": the allocations that the search and the filter find, over time and as a list.

import { byId, make, mutedText } from "./dom.js";
import { drawFilter } from "./filter.js";
import { bytesText, countOf } from "./format.js";
import { Pyramid } from "./pyramid.js";
import { allocationTable } from "./selection.js";
import { device, highlighted, redrawAll, setMoment, setQuery, setZoom, view } from "./view.js";

const FOUND_ROWS = 60;

/** @typedef {{of: Uint8Array, bytes: Float64Array, peaks: Pyramid, count: number, kinds: Set<number>}} Found */
/** @type {Found | null} */
let found = null;

/** The bytes of the highlighted allocations at every moment. @returns {Found | null} */
export function foundOverTime() {
  if (!highlighted) return null;
  if (found?.of === highlighted) return found;
  const isHighlighted = highlighted;
  const sums = device.data.liveBytes((row) => isHighlighted[row]);
  let count = 0;
  /** @type {Set<number>} */
  const kinds = new Set();
  highlighted.forEach((one, row) => {
    count += one;
    if (one) kinds.add(device.data.kind[row]);
  });
  found = { of: highlighted, bytes: sums, peaks: new Pyramid(sums), count, kinds };
  return found;
}

/** The highlighted allocations if the pictures show only these, else null. */
export function onlyRows() {
  return view.only ? highlighted : null;
}

/** Goes to the moment with the most highlighted bytes. */
export function goToHighlightPeak() {
  const over = foundOverTime();
  if (over) setMoment(over.peaks.argmax(0, device.data.entries + 1));
}

/** Shows the found allocations alone, over the time in which they live, at their peak. */
export function zoomToFound() {
  const over = foundOverTime();
  if (!over?.count || !highlighted) return;
  const { data } = device;
  let [from, to] = [data.entries, 0];
  for (let row = 0; row < highlighted.length; row += 1) {
    if (!highlighted[row]) continue;
    from = Math.min(from, data.allocatedAt[row]);
    to = Math.max(to, Math.min(data.entries + 1, data.completedAt[row]));
  }
  const margin = Math.max(2, (to - from) * 0.05);
  setZoom(from - margin, to + margin);
  setOnly(true);
  goToHighlightPeak();
}

/** @param {boolean} only */
function setOnly(only) {
  view.only = only;
  redrawAll();
}

/** The largest highlighted allocations. @param {number} count */
function largestFound(count) {
  const { bytes } = device.data;
  /** @type {number[]} */
  const rows = [];
  highlighted?.forEach((one, row) => one && rows.push(row));
  return rows.sort((a, b) => bytes[b] - bytes[a] || a - b).slice(0, count);
}

export function drawFound() {
  byId("only").setAttribute("aria-pressed", String(view.only));
  for (const id of ["only", "zoom-found", "filter-clear"]) byId(id).hidden = !highlighted;
  if (view.pane !== "search") return;
  drawFilter();
  const over = foundOverTime();
  const list = byId("found");
  if (!over) {
    const help = "Search a file, function or variable above the timeline, or choose properties here.";
    list.replaceChildren(mutedText(help));
    return;
  }
  const most = over.peaks.argmax(0, device.data.entries + 1);
  const rows = over.count > FOUND_ROWS ? `${FOUND_ROWS} largest` : "allocations";
  const sums = `${bytesText(over.bytes[view.moment])} now and at most ${bytesText(over.bytes[most])} ${device.momentText(most)}`;
  const table = allocationTable(`The ${rows}, of ${sums}; click one to select it`, largestFound(FOUND_ROWS));
  list.replaceChildren(make("p", {}, `${countOf(over.count, "allocation")} found`), table);
}

export function wireFound() {
  byId("zoom-found").addEventListener("click", zoomToFound);
  byId("only").addEventListener("click", () => setOnly(!view.only));
  byId("filter-clear").addEventListener("click", clearSearch);
}

export function clearSearch() {
  view.only = false;
  view.filter = "";
  setQuery("");
}

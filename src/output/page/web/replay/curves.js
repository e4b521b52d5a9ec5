// The picture of a replay: reserved and allocated memory of the recorded and of the replayed run, over each other.

import { partition } from "../columns.js";
import { makeSvg } from "../dom.js";

export const CURVES_WIDTH = 1000;
export const CURVES_HEIGHT = 220;

/**
 * @typedef {object} Curve
 * @property {number[]} first index of the first entry of each bucket
 * @property {number[]} reserved
 * @property {number[]} allocated
 */

/** The steps of a series, as a path. @param {Curve} curve @param {number[]} values @param {(entry: number) => number} x @param {(bytes: number) => number} y @param {number} end the last entry */
function stepPath(curve, values, x, y, end) {
  let path = "";
  values.forEach((value, at) => {
    const left = x(curve.first[at]).toFixed(1);
    const right = x(curve.first[at + 1] ?? end).toFixed(1);
    path += `${at ? "L" : "M"}${left},${y(value).toFixed(1)}H${right}`;
  });
  return path;
}

/** The bytes of a series at an entry. @param {Curve} curve @param {number[]} values @param {number} entry */
export function valueAt(curve, values, entry) {
  const low = partition(curve.first.length, (at) => curve.first[at] <= entry);
  return values[Math.max(0, low - 1)] ?? 0;
}

/** The number of entries that the picture shows. @param {any[]} runs @param {number} entries of the recording */
function lastEntry(runs, entries) {
  return runs.reduce((last, run) => Math.max(last, (run.curve.first.at(-1) ?? 0) + 1), entries);
}

/** Draws the runs into `svg`. @param {any} svg @param {any} recorded the run as recorded @param {any} replayed the replayed run @param {number} entries of the recording */
export function drawCurves(svg, recorded, replayed, entries) {
  const end = lastEntry([recorded, replayed], entries);
  const capacity = replayed.capacity_bytes ?? 0;
  let top = 1;
  for (const { curve } of [recorded, replayed]) for (const value of curve.reserved) top = Math.max(top, value);
  // A far larger device would flatten the curves.
  if (capacity < 2 * top) top = Math.max(top, capacity);
  top *= 1.04;
  /** @param {number} entry */
  const x = (entry) => (entry / Math.max(1, end)) * CURVES_WIDTH;
  /** @param {number} bytes */
  const y = (bytes) => CURVES_HEIGHT - (bytes / top) * CURVES_HEIGHT;
  const parts = ["allocated", "reserved"].flatMap((series) =>
    Object.entries({ recorded, replayed }).map(([name, { curve }]) => {
      const d = stepPath(curve, curve[series], x, y, end);
      const close = series === "allocated" ? `V${CURVES_HEIGHT}H${x(curve.first[0] ?? 0).toFixed(1)}Z` : "";
      return makeSvg("path", { class: `${name} ${series}`, d: d && d + close });
    }),
  );
  if (capacity && capacity <= top)
    parts.push(makeSvg("path", { class: "capacity", d: `M0,${y(capacity)}H${CURVES_WIDTH}` }));
  if (end > entries) parts.push(makeSvg("path", { class: "end", d: `M${x(entries)},0V${CURVES_HEIGHT}` }));
  for (const [name, run] of Object.entries({ recorded, replayed }))
    for (const { event } of run.failed) {
      const d = `M${x(event).toFixed(1)},0v${name === "recorded" ? 10 : 18}`;
      parts.push(makeSvg("path", { class: `failed ${name}`, d }));
    }
  parts.push(makeSvg("path", { class: "cursor", d: "" }));
  svg.replaceChildren(...parts);
}

/** The entry of a position in the picture, from 0 to 1. @param {number} part @param {any[]} runs @param {number} entries */
export function entryAt(part, runs, entries) {
  return Math.min(lastEntry(runs, entries) - 1, Math.max(0, Math.floor(part * lastEntry(runs, entries))));
}

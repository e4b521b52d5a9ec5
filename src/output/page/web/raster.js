// Painting the timeline. Each column of pixels shows the moment of its range with most allocated memory, so no peak is
// lost at any zoom.

import { PENDING, dimPixels, groupPixels, groups, pixels, rowPixels, waitingPixel } from "./colours.js";
import { ALLOC, FREE_COMPLETED } from "./columns.js";
import { foundOverTime, onlyRows } from "./found.js";
import { lineColour } from "./groups.js";
import { mix, pixelOf } from "./theme.js";
import { device, highlighted, view } from "./view.js";
/** @import { Sweep } from "./sweep.js" */

/** Position of a moment in the zoom, or in another range, 0 to 1. @param {number} x @param {number} [start] @param {number} [end] */
export function xOfMoment(x, start = view.start, end = view.end) {
  if (view.axis === "entry") return (x - start) / (end - start);
  const from = device.data.timeAt(start);
  return (device.data.timeAt(x) - from) / (device.data.timeAt(end) - from || 1);
}

/** The inverse of `xOfMoment`. @param {number} share @param {number} [start] @param {number} [end] */
export function momentOfX(share, start = view.start, end = view.end) {
  if (view.axis === "entry") return start + (end - start) * share;
  const from = device.data.timeAt(start);
  return device.data.momentAt(from + (device.data.timeAt(end) - from) * share);
}

/** The moment shown by each of `width` columns. @param {number} width */
export function momentsOfColumns(width) {
  const { entries } = device.data;
  const moments = new Uint32Array(width);
  const { peaks } = (view.only && foundOverTime()) || device.totals;
  let from = Math.min(entries, Math.floor(momentOfX(0)));
  for (let at = 0; at < width; at += 1) {
    const end = momentOfX((at + 1) / width);
    const to = Math.max(from + 1, Math.min(entries + 1, Math.ceil(end)));
    moments[at] = to - from === 1 ? from : peaks.argmax(from, to);
    from = Math.min(entries, Math.floor(end));
  }
  return moments;
}

/** Number of moments between stored sums of the bands. */
const BAND_KEYFRAME_INTERVAL = 512;
/** Bytes by band at every such moment, for the current groups and highlight. @type {{groups: any, highlighted: any, device: any, sums: Float64Array, now: Float64Array} | null} */
let bandKeyframes = null;

/** Two bands per group, highlighted and not, and one for memory that waits for another stream. */
const bandCount = () => groups.names.length * 2 + 1;
/** @param {number} row */
const bandOfRow = (row) => groups.groupOfKind[device.data.kind[row]] * 2 + (highlighted && !highlighted[row] ? 1 : 0);

/** @param {Float64Array} sums @param {number} m */
function stepBands(sums, m) {
  const { changes, changeStart, bytes, freedAt, allocatedAt } = device.data;
  const waiting = groups.names.length * 2;
  for (let at = changeStart[m]; at < changeStart[m + 1]; at += 1) {
    const row = changes[at] >>> 2;
    const event = changes[at] & 3;
    if (event === ALLOC) {
      sums[freedAt[row] === m ? waiting : bandOfRow(row)] += bytes[row];
    } else if (event === FREE_COMPLETED) {
      sums[waiting] -= bytes[row];
    } else if (allocatedAt[row] !== m) {
      sums[bandOfRow(row)] -= bytes[row];
      sums[waiting] += bytes[row];
    }
  }
}

function bandsAtKeyframes() {
  const key = { groups, highlighted, device };
  if (bandKeyframes && Object.entries(key).every(([name, of]) => /** @type {any} */ (bandKeyframes)[name] === of))
    return bandKeyframes;
  const count = bandCount();
  const sums = new Float64Array(count * (Math.floor(device.data.entries / BAND_KEYFRAME_INTERVAL) + 1));
  const now = new Float64Array(count);
  for (let m = 0; m <= device.data.entries; m += 1) {
    stepBands(now, m);
    if (m % BAND_KEYFRAME_INTERVAL === 0) sums.set(now, (m / BAND_KEYFRAME_INTERVAL) * count);
  }
  bandKeyframes = { ...key, sums, now };
  return bandKeyframes;
}

/** Calls `visit` with the bytes of every band at each moment. Fastest if the moments ascend. @param {Uint32Array} moments @param {(sums: Float64Array, at: number) => void} visit */
export function sweepBands(moments, visit) {
  const { sums, now } = bandsAtKeyframes();
  const count = bandCount();
  let here = -1;
  for (let at = 0; at < moments.length; at += 1) {
    const m = moments[at];
    const nearest = Math.floor(m / BAND_KEYFRAME_INTERVAL);
    if (here < 0 || m < here || nearest * BAND_KEYFRAME_INTERVAL > here) {
      here = nearest * BAND_KEYFRAME_INTERVAL;
      now.set(sums.subarray(nearest * count, (nearest + 1) * count));
    }
    while (here < m) stepBands(now, (here += 1));
    visit(now, at);
  }
}

/** Returns a function that paints one column, band by band from the bottom. @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale pixels per byte */
export function paintBands(out, width, height, scale) {
  let count = bandCount();
  const colours = new Uint32Array(count);
  /** The colour of the lines across each band: its own unless the band is a guess. */
  const hatches = new Uint32Array(count);
  for (let group = 0; group < groups.names.length; group += 1) {
    colours[group * 2] = groupPixels[group];
    colours[group * 2 + 1] = dimPixels[group];
    const isGuess = groups.isGuess?.[group];
    for (const band of [group * 2, group * 2 + 1])
      hatches[band] = isGuess ? mix(colours[band], pixels.back, 0.5) : colours[band];
  }
  const waiting = count - 1;
  // With `only`, the bands of the rest have no place, nor has waiting memory, which is last.
  const step = view.only ? 2 : 1;
  if (view.only) count -= 1;
  /** @param {Float64Array} sums @param {number} x */
  return (sums, x) => {
    colours[waiting] = hatches[waiting] = waitingPixel(x);
    let [bytes, y, at] = [0, 0, (height - 1) * width + x];
    for (let band = 0; band < count; band += step) {
      bytes += sums[band];
      const end = Math.min(height, Math.floor(bytes * scale));
      for (; y < end; y += 1, at -= width) out[at] = (x + y) % 9 < 2 ? hatches[band] : colours[band];
    }
  };
}

/**
 * @typedef {object} StackedRows
 * @property {Sweep} sweep
 * @property {{bytes: Float64Array}} rows
 * @property {(row: number, m: number) => number} pixelAt
 */

/** The rows that the timeline stacks one by one; null if it stacks groups. @returns {StackedRows | null} */
export function stackedRows() {
  const { sweep, data } = device;
  if (view.mode === "each")
    return { sweep, rows: data, pixelAt: (row, m) => (data.freedAt[row] <= m ? PENDING : rowPixels[row]) };
  if (view.mode !== "segment") return null;
  const rows = device.segmentRows();
  const colours = rows.places.map((_, at) => pixelOf(lineColour(at)));
  const pixelAt = (/** @type {number} */ row) => (row === view.segment ? pixels.accent : colours[rows.place[row]]);
  return { sweep: device.segmentSweep(), rows, pixelAt };
}

/** Returns a function that paints one column, row by row from the bottom. @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale */
export function paintEach(out, width, height, scale) {
  const only = view.mode === "each" ? onlyRows() : null;
  const { sweep, rows, pixelAt } = /** @type {StackedRows} */ (stackedRows());
  const { next, head, tail } = sweep;
  /** @param {number} m @param {number} x */
  return (m, x) => {
    sweep.seek(m);
    let [bytes, y, at] = [0, 0, (height - 1) * width + x];
    for (let row = next[head]; row !== tail; row = next[row]) {
      if (only && !only[row]) continue;
      bytes += rows.bytes[row];
      const end = Math.min(height, Math.floor(bytes * scale));
      if (end <= y) continue;
      let pixel = pixelAt(row, m);
      if (pixel === PENDING) pixel = waitingPixel(x);
      else if (end - y > 3) {
        out[at] = mix(pixel, pixels.back, 0.45);
        at -= width;
        y += 1;
      }
      for (; y < end; y += 1, at -= width) out[at] = pixel;
    }
  };
}

/** Copies the previous column. @param {Uint32Array} out @param {number} width @param {number} height @param {number} x */
export function repeatColumn(out, width, height, x) {
  for (let at = x, end = width * height; at < end; at += width) out[at] = out[at - 1];
}

// The figures of a moment, computed from the columns. `analyze --at` gives the same.

import { segmentsWithBlocksAt } from "./space.js";
/** @import { Device } from "./device.js" */
/** @import { Segment } from "./space.js" */

/**
 * @typedef {object} Moment
 * @property {number} m
 * @property {Uint32Array} rows live allocations, oldest first
 * @property {Segment[]} segments
 */

/** @param {Device} device @param {number} m @returns {Moment} */
export function momentAt(device, m) {
  const rows = device.sweep.live(m);
  return { m, rows, segments: segmentsWithBlocksAt(device.data, m, rows) };
}

/** @param {Device} device @param {Moment} moment */
export function figuresOf(device, { m, rows, segments }) {
  const { data, totals } = device;
  const unit = data.header.unit;
  let [requested, blocks, releasable, free, largest] = [0, 0, 0, 0, 0];
  for (const row of rows) {
    requested += data.requested[data.kind[row]];
    if (data.freedAt[row] > m) blocks += 1;
  }
  for (const segment of segments) {
    releasable += segment.releasable * unit;
    free += (segment.releasable + segment.stranded) * unit;
    largest = Math.max(largest, segment.largest * unit);
  }
  return {
    allocated: totals.allocated[m],
    reserved: totals.reserved[m],
    requested,
    pending: totals.pending[m],
    free,
    releasable,
    stranded: free - releasable,
    blocks,
    largest_free_block: largest,
    segments: segments.length,
  };
}

/**
 * Allocated bytes and blocks by key, most bytes first.
 * @param {Device} device
 * @param {Moment} moment
 * @param {Uint32Array} keyOfKind the key of each kind
 * @param {Uint8Array | null} [only] the allocations that count
 * @returns {{key: number, bytes: number, blocks: number}[]}
 */
export function sumsBy(device, { m, rows }, keyOfKind, only = null) {
  const { data } = device;
  /** @type {Map<number, {key: number, bytes: number, blocks: number}>} */
  const sums = new Map();
  for (const row of rows) {
    if (data.freedAt[row] <= m || (only && !only[row])) continue;
    const key = keyOfKind[data.kind[row]];
    let sum = sums.get(key);
    if (!sum) sums.set(key, (sum = { key, bytes: 0, blocks: 0 }));
    sum.bytes += data.bytes[row];
    sum.blocks += 1;
  }
  return [...sums.values()].sort((a, b) => b.bytes - a.bytes || a.key - b.key);
}

/** Who holds the memory: a row for each line and category, most bytes first. @param {Device} device @param {Moment} moment @param {Uint8Array | null} [only] the allocations that count */
export function holders(device, moment, only = null) {
  const { data, stacks } = device;
  const { categories } = data.header;
  const keys = stacks.lineOfKind.map((line, kind) => line * categories.length + data.category[kind]);
  return sumsBy(device, moment, keys, only).map(({ key, bytes, blocks }) => ({
    line: Math.floor(key / categories.length),
    category: categories[key % categories.length],
    bytes,
    blocks,
  }));
}

/** @param {Device} device @param {Moment} moment @param {number} count */
export function topLines(device, moment, count) {
  const rows = holders(device, moment).slice(0, count);
  return rows.map(({ line, ...sum }) => ({ text: device.stacks.lineLabel(line), ...sum }));
}

// Allocated, waiting and reserved bytes at every moment.

import { ALLOC, FREE_COMPLETED } from "./columns.js";
import { Pyramid } from "./pyramid.js";
/** @import { Columns } from "./columns.js" */

export class Totals {
  /** @param {Columns} data */
  constructor(data) {
    const { entries, changes, changeStart, bytes, freedAt } = data;
    this.allocated = new Float64Array(entries + 1);
    /** Freed by the program, waiting for another stream. */
    this.pending = new Float64Array(entries + 1);
    this.reserved = new Float64Array(entries + 1);
    let allocated = 0;
    let pending = 0;
    for (let m = 0; m <= entries; m += 1) {
      for (let at = changeStart[m]; at < changeStart[m + 1]; at += 1) {
        const row = changes[at] >>> 2;
        const event = changes[at] & 3;
        if (event === ALLOC) {
          if (freedAt[row] === m) pending += bytes[row];
          else allocated += bytes[row];
        } else if (event === FREE_COMPLETED) {
          pending -= bytes[row];
        } else if (data.allocatedAt[row] !== m) {
          allocated -= bytes[row];
          pending += bytes[row];
        }
      }
      this.allocated[m] = allocated;
      this.pending[m] = pending;
    }
    for (let at = 0; at < data.segments; at += 1) {
      const size = data.segmentSize[at] * data.header.unit;
      this.reserved[data.segmentStart[at]] += size;
      if (data.segmentEnd[at] <= entries) this.reserved[data.segmentEnd[at]] -= size;
    }
    for (let m = 1; m <= entries; m += 1) this.reserved[m] += this.reserved[m - 1];
    /** Whether memory ever waits for another stream for more than one entry. */
    this.hasPending = false;
    for (let m = 1; m <= entries && !this.hasPending; m += 1)
      this.hasPending = this.pending[m] > 0 && this.pending[m - 1] > 0;
    this.hasPending ||= this.pending[entries] > 0;
    this.peaks = new Pyramid(this.allocated);
    /** The first moment with the peak of allocated bytes. */
    this.peak = this.peaks.argmax(0, entries + 1);
    this.mostReserved = 0;
    for (const value of this.reserved) if (value > this.mostReserved) this.mostReserved = value;
  }
}

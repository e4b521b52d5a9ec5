// Allocated, waiting and reserved bytes at every moment.

import { ALLOC, FREE_COMPLETED } from "./columns.js";
import { Pyramid } from "./pyramid.js";
/** @import { Columns } from "./columns.js" */

export class Totals {
  /** @param {Columns} data */
  constructor(data) {
    const { entries, changes, changeStart, bytes } = data;
    this.allocated = data.liveBytes(() => true);
    /** Freed by the program, waiting for another stream: in use, and not allocated. */
    this.pending = new Float64Array(entries + 1);
    this.reserved = new Float64Array(entries + 1);
    let used = 0;
    for (let m = 0; m <= entries; m += 1) {
      for (let at = changeStart[m]; at < changeStart[m + 1]; at += 1) {
        const [size, event] = [bytes[changes[at] >>> 2], changes[at] & 3];
        if (event === ALLOC) used += size;
        else if (event === FREE_COMPLETED) used -= size;
      }
      this.pending[m] = used - this.allocated[m];
    }
    for (let at = 0; at < data.segments; at += 1) {
      const size = data.segmentSize[at] * data.header.unit;
      this.reserved[data.segmentStart[at]] += size;
      if (data.segmentEnd[at] <= entries) this.reserved[data.segmentEnd[at]] -= size;
    }
    for (let m = 1; m <= entries; m += 1) this.reserved[m] += this.reserved[m - 1];
    /** Whether memory ever waits for another stream for more than one entry. */
    this.hasPending = this.pending.some((bytes, m) => bytes > 0 && (m === entries || this.pending[m + 1] > 0));
    this.peaks = new Pyramid(this.allocated);
    /** The first moment with the peak of allocated bytes. */
    this.peak = this.peaks.argmax(0, entries + 1);
    this.mostReserved = this.reserved.reduce((most, value) => Math.max(most, value), 0);
  }
}

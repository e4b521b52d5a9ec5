// The live allocations at any moment, oldest first. A doubly linked list follows the entries from the nearest keyframe.
// An allocation that waits for another stream is live until its memory is free.

import { ALLOC, FREE_COMPLETED } from "./columns.js";
/** @import { Columns } from "./columns.js" */

export const KEYFRAME_INTERVAL = 4096;

export class Sweep {
  /** @param {Columns} data */
  constructor(data) {
    const count = data.allocations;
    this.data = data;
    this.next = new Uint32Array(count + 2);
    this.prev = new Uint32Array(count + 2);
    /** Sentinels of the list. */
    this.head = count;
    this.tail = count + 1;
    this.#reset(new Uint32Array(0));
    /** @type {Uint32Array[]} */
    this.keyframes = [];
    let live = 0;
    for (let m = 0; m <= data.entries; m += 1) {
      live += this.#step(m);
      if (m % KEYFRAME_INTERVAL === 0) {
        this.keyframes.push(this.#list(live));
      }
    }
    this.now = data.entries;
  }

  /** @param {Uint32Array} rows */
  #reset(rows) {
    let last = this.head;
    for (const row of rows) {
      this.next[last] = row;
      this.prev[row] = last;
      last = row;
    }
    this.next[last] = this.tail;
    this.prev[this.tail] = last;
  }

  /** @param {number} m @returns {number} change in the number of live allocations */
  #step(m) {
    const { changes, changeStart } = this.data;
    const { next, prev, tail } = this;
    let added = 0;
    for (let at = changeStart[m]; at < changeStart[m + 1]; at += 1) {
      const row = changes[at] >>> 2;
      const event = changes[at] & 3;
      if (event === ALLOC) {
        const last = prev[tail];
        next[last] = row;
        prev[row] = last;
        next[row] = tail;
        prev[tail] = row;
        added += 1;
      } else if (event === FREE_COMPLETED) {
        next[prev[row]] = next[row];
        prev[next[row]] = prev[row];
        added -= 1;
      }
    }
    return added;
  }

  /** @param {number} count */
  #list(count) {
    const rows = new Uint32Array(count);
    let row = this.next[this.head];
    for (let at = 0; at < count; at += 1, row = this.next[row]) rows[at] = row;
    return rows;
  }

  /** Moves the list to moment m. @param {number} m */
  seek(m) {
    if (m < this.now || m - this.now > KEYFRAME_INTERVAL) {
      const nearest = Math.floor(m / KEYFRAME_INTERVAL);
      this.#reset(this.keyframes[nearest]);
      this.now = nearest * KEYFRAME_INTERVAL;
    }
    while (this.now < m) this.#step((this.now += 1));
  }

  /** The live allocations at moment m. @param {number} m */
  live(m) {
    this.seek(m);
    let count = 0;
    for (let row = this.next[this.head]; row !== this.tail; row = this.next[row]) count += 1;
    return this.#list(count);
  }
}

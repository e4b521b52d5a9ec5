// The live allocations of any moment, oldest first: a doubly linked list that is followed entry by entry from the
// nearest keyframe. Allocations that wait for another stream are live until their memory is free.

const KEYFRAME = 4096;

class Sweep {
  /** @param {Columns} data */
  constructor(data) {
    const count = data.allocations;
    this.data = data;
    this.next = new Uint32Array(count + 2);
    this.prev = new Uint32Array(count + 2);
    /** Ends of the list. */
    this.head = count;
    this.tail = count + 1;
    this.#reset(new Uint32Array(0));
    /** @type {Uint32Array[]} */
    this.keyframes = [];
    /** The most allocations live at a keyframe. */
    this.most = 0;
    let live = 0;
    for (let m = 0; m <= data.entries; m += 1) {
      live += this.#step(m);
      if (m % KEYFRAME === 0) {
        this.keyframes.push(this.#list(live));
        this.most = Math.max(this.most, live);
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

  /** @param {number} m @returns {number} how many more are live */
  #step(m) {
    const { change, changeAt } = this.data;
    const { next, prev, tail } = this;
    let more = 0;
    for (let at = changeAt[m]; at < changeAt[m + 1]; at += 1) {
      const row = change[at] >>> 2;
      const what = change[at] & 3;
      if (what === BEGINS) {
        const last = prev[tail];
        next[last] = row;
        prev[row] = last;
        next[row] = tail;
        prev[tail] = row;
        more += 1;
      } else if (what === ENDS) {
        next[prev[row]] = next[row];
        prev[next[row]] = prev[row];
        more -= 1;
      }
    }
    return more;
  }

  /** @param {number} count */
  #list(count) {
    const rows = new Uint32Array(count);
    let row = this.next[this.head];
    for (let at = 0; at < count; at += 1, row = this.next[row]) rows[at] = row;
    return rows;
  }

  /** Makes the list that of moment m. @param {number} m */
  seek(m) {
    if (m < this.now || m - this.now > KEYFRAME) {
      const nearest = Math.floor(m / KEYFRAME);
      this.#reset(this.keyframes[nearest]);
      this.now = nearest * KEYFRAME;
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

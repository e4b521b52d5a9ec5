// What one device's trace says, as columns: allocations, the kinds they are of, segments, times.
//
// A moment m in 0..=entries is the state after m entries. Addresses are in units (`unit` bytes) of an address space in
// which what the trace never mentions is left out.

const NEVER = 0xffffffff;

/** What happens to an allocation at a moment: its memory is free, it is given back and waits, it begins. */
const ENDS = 0;
const FREES = 1;
const BEGINS = 2;

class Columns {
  /** @param {{header: any, column: (name: string) => Uint8Array}} packed */
  constructor({ header, column }) {
    /** @param {string} name @param {number} count */
    const small = (name, count) => varints(column(name), new Uint32Array(count));
    /** @param {string} name @param {number} count */
    const large = (name, count) => varints(column(name), new Float64Array(count));
    const { entries, allocations, kinds, segments } = header;
    this.header = header;
    /** Entries of the trace: moments go from 0 to here. */
    this.entries = entries;
    this.allocations = allocations;
    this.kinds = kinds;

    this.start = small("start", allocations);
    this.req = small("req", allocations);
    this.done = small("done", allocations);
    this.kind = small("kind", allocations);
    this.addr = undelta(large("addr", allocations));
    /** Bytes of the block of each allocation. */
    this.bytes = large("slack", allocations);

    this.requested = large("krequested", kinds);
    this.node = small("knode", kinds);
    this.stream = small("kstream", kinds);
    this.pool = small("kpool", kinds);
    this.category = small("kcategory", kinds);
    this.confidence = small("kconfidence", kinds);
    this.phase = small("kphase", kinds);
    this.#lifetimes();

    this.segments = segments;
    this.segmentStart = small("sstart", segments);
    this.segmentEnd = small("send", segments);
    this.segmentAddr = undelta(large("saddr", segments));
    this.segmentSize = large("ssize", segments);
    this.segmentStream = small("sstream", segments);
    this.segmentPool = small("spool", segments);
    this.segmentFlags = small("sflags", segments);
    for (let at = 0; at < segments; at += 1) {
      if (!this.segmentEnd[at]) this.segmentEnd[at] = NEVER;
    }
    /** Segments by address. */
    this.segmentOrder = Uint32Array.from({ length: segments }, (_, at) => at);
    this.segmentOrder.sort(
      (a, b) => this.segmentAddr[a] - this.segmentAddr[b] || this.segmentStart[a] - this.segmentStart[b],
    );

    this.hasTime = column("time").length > 0;
    /** Microseconds from the first entry, by moment; the number of entries where no time was recorded. */
    this.time = new Float64Array(entries + 1);
    if (this.hasTime) {
      this.time.set(undelta(large("time", entries)), 1);
      const first = this.time[1];
      for (let m = 1; m <= entries; m += 1) this.time[m] = Math.max(this.time[m] - first, this.time[m - 1]);
    } else {
      for (let m = 0; m <= entries; m += 1) this.time[m] = m;
    }
    /** How many moments each part of `undrawn` has. */
    this.undrawnPart = Math.max(1, Math.ceil((entries + 1) / 1024));
    /** The most bytes that are left out in each part of the trace, if any are. */
    this.undrawn = header.undrawn ? large("undrawn", Math.ceil((entries + 1) / this.undrawnPart)) : null;
    /** @type {Uint32Array} */
    this.change = new Uint32Array(0);
    this.changeAt = new Uint32Array(entries + 3);
    this.#changesByMoment();
  }

  /** From differences to moments, and from requested bytes to bytes of blocks. */
  #lifetimes() {
    const { unit, pending_at_start: pending = 0 } = this.header;
    let start = 0;
    for (let row = 0; row < this.allocations; row += 1) {
      start += this.start[row];
      this.start[row] = start;
      const held = this.req[row];
      const waited = this.done[row];
      this.req[row] = held || waited || row < pending ? start + held : NEVER;
      this.done[row] = waited ? start + held + waited - 1 : NEVER;
      this.bytes[row] = (Math.ceil(this.requested[this.kind[row]] / unit) + this.bytes[row]) * unit;
    }
  }

  /** What changes at moment m is `change[changeAt[m] .. changeAt[m + 1]]`: allocation * 4 + what happens, ends first. */
  #changesByMoment() {
    const { entries, allocations, start, req, done } = this;
    const at = this.changeAt;
    const steps = [done, req, start];
    for (const moments of steps) {
      for (let row = 0; row < allocations; row += 1) {
        if (moments[row] <= entries && done[row] > start[row]) at[moments[row] + 2] += 1;
      }
    }
    for (let m = 2; m < at.length; m += 1) at[m] += at[m - 1];
    const change = new Uint32Array(at[entries + 2]);
    steps.forEach((moments, what) => {
      for (let row = 0; row < allocations; row += 1) {
        if (moments[row] <= entries && done[row] > start[row]) change[at[moments[row] + 1]++] = row * 4 + what;
      }
    });
    this.change = change;
  }

  /** Bytes at moment m that are not among the allocations, at most. @param {number} m */
  undrawnAt(m) {
    return this.undrawn ? this.undrawn[Math.floor(m / this.undrawnPart)] : 0;
  }

  /** The moment's place among microseconds: linear between moments, so that a zoom may begin between two. @param {number} x */
  timeAt(x) {
    const m = Math.max(0, Math.min(this.entries, Math.floor(x)));
    const here = this.time[m];
    const next = m < this.entries ? this.time[m + 1] : here + this.tail();
    return here + (next - here) * Math.max(0, Math.min(1, x - m));
  }

  /** How long the state after the last entry is drawn: it has no end. */
  tail() {
    return Math.max(1, this.time[this.entries] / 400);
  }

  /** The inverse of `timeAt`. @param {number} us */
  momentAt(us) {
    let low = 0;
    let high = this.entries;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.time[middle] <= us) low = middle;
      else high = middle - 1;
    }
    const here = this.time[low];
    const next = low < this.entries ? this.time[low + 1] : here + this.tail();
    return low + (next > here ? Math.max(0, Math.min(1, (us - here) / (next - here))) : 0);
  }

  /** The address in the device's own space, or null. @param {number} units */
  address(units) {
    let before = 0;
    for (const [base, size] of this.header.regions) {
      if (units < before + size)
        return `0x${(BigInt(base) + BigInt(Math.max(0, units - before)) * BigInt(this.header.unit)).toString(16)}`;
      before += size;
    }
    return null;
  }
}

// The trace of one device as columns: allocations, kinds of allocations, segments, times.
//
// A moment m in 0..=entries is the state after m entries. Addresses count units of `unit` bytes in an address space
// without the ranges that the trace never mentions (see `address`).

import { undelta, varints } from "./decode.js";

const NEVER = 0xffffffff;

/** Changes of an allocation at a moment, in the order in which they apply. */
export const FREE_COMPLETED = 0;
export const FREE_REQUESTED = 1;
export const ALLOC = 2;

/** The first index below `count` for which `isBefore` does not hold. @param {number} count @param {(at: number) => boolean} isBefore */
export function partition(count, isBefore) {
  let low = 0;
  for (let high = count; low < high;) {
    const middle = (low + high) >> 1;
    if (isBefore(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Columns {
  /** @type {() => Uint32Array} */
  #freeNodes;
  /** @type {Uint32Array | undefined} */
  #freeNode;

  /** @param {{header: any, column: (name: string) => Uint8Array}} packed */
  constructor({ header, column }) {
    /** @param {string} name @param {number} count */
    const integers = (name, count) => varints(column(name), new Uint32Array(count));
    /** @param {string} name @param {number} count */
    const numbers = (name, count) => varints(column(name), new Float64Array(count));
    const { entries, allocations, kinds, segments } = header;
    this.header = header;
    /** Number of entries, and the last moment. */
    this.entries = entries;
    this.allocations = allocations;
    this.kinds = kinds;

    this.allocatedAt = integers("start", allocations);
    this.freedAt = integers("req", allocations);
    this.completedAt = integers("done", allocations);
    this.kind = integers("kind", allocations);
    this.addr = undelta(numbers("addr", allocations));
    /** Size of the block of each allocation. */
    this.bytes = numbers("slack", allocations);

    this.#freeNodes = () => integers("fnode", allocations);

    this.requested = numbers("krequested", kinds);
    this.node = integers("knode", kinds);
    this.stream = integers("kstream", kinds);
    this.pool = integers("kpool", kinds);
    this.category = integers("kcategory", kinds);
    this.confidence = integers("kconfidence", kinds);
    this.phase = integers("kphase", kinds);
    /** Row of `header.variables`; all 0 if the recorder named none. */
    this.variable = integers("kvariable", kinds);
    this.#decodeLifetimes();

    this.segments = segments;
    this.segmentStart = integers("sstart", segments);
    this.segmentEnd = integers("send", segments).map((end) => end || NEVER);
    this.segmentAddr = undelta(numbers("saddr", segments));
    this.segmentSize = numbers("ssize", segments);
    this.segmentStream = integers("sstream", segments);
    this.segmentPool = integers("spool", segments);
    this.segmentFlags = integers("sflags", segments);
    /** Nodes of the stacks that mapped and released each range; 0 if not recorded. */
    this.segmentNode = integers("snode", segments);
    this.segmentFreeNode = integers("sfnode", segments);
    /** Segments ordered by address. */
    this.segmentOrder = Uint32Array.from({ length: segments }, (_, at) => at);
    const [addr, start] = [this.segmentAddr, this.segmentStart];
    this.segmentOrder.sort((a, b) => addr[a] - addr[b] || start[a] - start[b]);

    this.hasTime = column("time").length > 0;
    /** Microseconds since the first entry, by moment. Without recorded times, the moment itself. */
    this.time = new Float64Array(entries + 1);
    if (this.hasTime) {
      this.time.set(undelta(numbers("time", entries)), 1);
      const first = this.time[1];
      for (let m = 1; m <= entries; m += 1) this.time[m] = Math.max(this.time[m] - first, this.time[m - 1]);
    } else {
      for (let m = 0; m <= entries; m += 1) this.time[m] = m;
    }
    /** Number of moments per value of `undrawn`. */
    this.undrawnPart = Math.max(1, Math.ceil((entries + 1) / 1024));
    /** Upper bound of the bytes that the page leaves out, for each part of the trace. */
    this.undrawn = header.undrawn ? numbers("undrawn", Math.ceil((entries + 1) / this.undrawnPart)) : null;
    /** @type {Uint32Array} */
    this.changes = new Uint32Array(0);
    this.changeStart = new Uint32Array(entries + 3);
    this.#sortChanges();
  }

  /** Node of the stack that freed each allocation; 0 if not recorded. Decoded when it is first needed. */
  get freeNode() {
    return (this.#freeNode ??= this.#freeNodes());
  }

  /** Turns differences into moments, and requested sizes into sizes of blocks. */
  #decodeLifetimes() {
    const { unit, pending_at_start: pending = 0 } = this.header;
    let start = 0;
    for (let row = 0; row < this.allocations; row += 1) {
      start += this.allocatedAt[row];
      this.allocatedAt[row] = start;
      const untilFree = this.freedAt[row];
      const untilCompleted = this.completedAt[row];
      this.freedAt[row] = untilFree || untilCompleted || row < pending ? start + untilFree : NEVER;
      this.completedAt[row] = untilCompleted ? start + untilFree + untilCompleted - 1 : NEVER;
      this.bytes[row] = (Math.ceil(this.requested[this.kind[row]] / unit) + this.bytes[row]) * unit;
    }
  }

  /** Fills `changes`. Those of moment m are `changes[changeStart[m] .. changeStart[m + 1]]`: allocation * 4 + change. */
  #sortChanges() {
    const { entries, allocations, allocatedAt, freedAt, completedAt } = this;
    const starts = this.changeStart;
    const steps = [completedAt, freedAt, allocatedAt];
    for (const moments of steps) {
      for (let row = 0; row < allocations; row += 1) {
        if (moments[row] <= entries && completedAt[row] > allocatedAt[row]) starts[moments[row] + 2] += 1;
      }
    }
    for (let m = 2; m < starts.length; m += 1) starts[m] += starts[m - 1];
    const change = new Uint32Array(starts[entries + 2]);
    steps.forEach((moments, event) => {
      for (let row = 0; row < allocations; row += 1) {
        if (moments[row] <= entries && completedAt[row] > allocatedAt[row])
          change[starts[moments[row] + 1]++] = row * 4 + event;
      }
    });
    this.changes = change;
  }

  /** Upper bound of the bytes at moment m that the page leaves out. @param {number} m */
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

  /** Width, in microseconds, of the state after the last entry, which has no end. */
  tail() {
    return Math.max(1, this.time[this.entries] / 400);
  }

  /** The live bytes of the allocations that count, at every moment. @param {(row: number) => any} counts */
  liveBytes(counts) {
    const { changes, changeStart, bytes, freedAt, allocatedAt, entries } = this;
    const sums = new Float64Array(entries + 1);
    let live = 0;
    for (let m = 0; m <= entries; m += 1) {
      for (let at = changeStart[m]; at < changeStart[m + 1]; at += 1) {
        const [row, event] = [changes[at] >>> 2, changes[at] & 3];
        if (!counts(row)) continue;
        if (event === ALLOC && freedAt[row] !== m) live += bytes[row];
        else if (event === FREE_REQUESTED && allocatedAt[row] !== m) live -= bytes[row];
      }
      sums[m] = live;
    }
    return sums;
  }

  /** The inverse of `timeAt`. @param {number} us */
  momentAt(us) {
    const low = Math.max(0, partition(this.entries + 1, (at) => this.time[at] <= us) - 1);
    const here = this.time[low];
    const next = low < this.entries ? this.time[low + 1] : here + this.tail();
    return low + (next > here ? Math.max(0, Math.min(1, (us - here) / (next - here))) : 0);
  }

  /** The real address as text, or null. @param {number} units */
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

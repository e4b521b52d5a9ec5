// Device memory at a moment: segments, the blocks in them, and what is free, by what could become of it.

/**
 * @typedef {object} Segment one `cudaMalloc`, or a run of mapped memory of an expandable segment
 * @property {number} addr in units
 * @property {number} size in units
 * @property {number} stream
 * @property {number} pool
 * @property {boolean} small
 * @property {boolean} expandable
 * @property {number} live units allocated
 * @property {number} pending units that wait for another stream
 * @property {number} releasable free units that `empty_cache()` would give back
 * @property {number} stranded the other free units
 * @property {number} largest units of the largest free block
 * @property {Hole[]} holes
 * @property {number[]} rows allocations, by address
 *
 * @typedef {object} Hole a free block
 * @property {number} addr
 * @property {number} size
 * @property {number} from where what could be given back of it begins
 * @property {number} to and ends
 */

/** The segments at moment m, by address, empty. @param {Columns} data @param {number} m @returns {Segment[]} */
function segmentsAt(data, m) {
  /** @type {Segment[]} */
  const segments = [];
  for (const at of data.segmentOrder) {
    if (data.segmentStart[at] > m || data.segmentEnd[at] <= m) continue;
    const [stream, pool, flags] = [data.segmentStream[at], data.segmentPool[at], data.segmentFlags[at]];
    const [addr, size] = [data.segmentAddr[at], data.segmentSize[at]];
    const small = (flags & 1) !== 0;
    const expandable = (flags & 2) !== 0;
    const last = segments.at(-1);
    if (
      expandable &&
      last?.expandable &&
      last.addr + last.size === addr &&
      last.stream === stream &&
      last.pool === pool &&
      last.small === small
    ) {
      last.size += size;
      continue;
    }
    segments.push({
      addr,
      size,
      stream,
      pool,
      small,
      expandable,
      live: 0,
      pending: 0,
      releasable: 0,
      stranded: 0,
      largest: 0,
      holes: [],
      rows: [],
    });
  }
  return segments;
}

/** Adds a free block to a segment. @param {Columns} data @param {Segment} segment @param {number} addr @param {number} end */
function addHole(data, segment, addr, end) {
  const size = end - addr;
  if (size <= 0) return;
  let [from, to] = [addr, addr];
  if (data.header.pools[segment.pool] === "0:0") {
    if (segment.expandable) {
      const granule = Math.max(1, data.header.granules[segment.small ? 0 : 1] / data.header.unit);
      from = segment.addr + Math.ceil((addr - segment.addr) / granule) * granule;
      to = Math.max(from, segment.addr + Math.floor((end - segment.addr) / granule) * granule);
    } else if (size === segment.size) {
      to = end;
    }
  }
  segment.holes.push({ addr, size, from, to });
  segment.releasable += to - from;
  segment.stranded += size - (to - from);
  segment.largest = Math.max(segment.largest, size);
}

/**
 * @param {Columns} data
 * @param {number} m
 * @param {Uint32Array} rows the live allocations
 * @returns {Segment[]} by address
 */
function spaceAt(data, m, rows) {
  const segments = segmentsAt(data, m);
  const unit = data.header.unit;
  // Address and place in one number: sorts without a comparison function.
  const keys = new Float64Array(rows.length);
  const span = rows.length || 1;
  for (let at = 0; at < rows.length; at += 1) keys[at] = data.addr[rows[at]] * span + at;
  keys.sort();
  let at = 0;
  for (const segment of segments) {
    const end = segment.addr + segment.size;
    let free = segment.addr;
    for (; at < rows.length; at += 1) {
      const addr = Math.floor(keys[at] / span);
      if (addr >= end) break;
      if (addr < segment.addr) continue;
      const row = rows[keys[at] - addr * span];
      const size = data.bytes[row] / unit;
      if (data.req[row] <= m) segment.pending += size;
      else segment.live += size;
      segment.rows.push(row);
      addHole(data, segment, free, addr);
      free = Math.max(free, addr + size);
    }
    addHole(data, segment, free, end);
  }
  return segments;
}

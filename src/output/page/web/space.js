// Device memory at a moment: segments, their blocks, and free memory by whether it could be returned to the device.

/** @import { Columns } from "./columns.js" */

/**
 * @typedef {object} Segment one `cudaMalloc`, or contiguous mapped memory of an expandable segment
 * @property {number} addr in units
 * @property {number} size in units
 * @property {number} stream
 * @property {number} pool
 * @property {boolean} small
 * @property {boolean} expandable
 * @property {number} live units allocated
 * @property {number} pending units that wait for another stream
 * @property {number} releasable free units that `empty_cache()` would return to the device
 * @property {number} stranded the other free units
 * @property {number} largest units of the largest free block
 * @property {Hole[]} holes
 * @property {number[]} rows allocations, by address
 * @property {number} range its first range of device memory
 *
 * @typedef {object} Hole a free block
 * @property {number} addr
 * @property {number} size
 * @property {number} from start of its releasable part
 * @property {number} to end of its releasable part
 */

const NO_BLOCKS = { live: 0, pending: 0, releasable: 0, stranded: 0, largest: 0 };

/** The segments at moment m by address, without their blocks. @param {Columns} data @param {number} m @returns {Segment[]} */
function emptySegmentsAt(data, m) {
  /** @type {Segment[]} */
  const segments = [];
  for (const at of data.segmentOrder) {
    if (data.segmentStart[at] > m || data.segmentEnd[at] <= m) continue;
    const [stream, pool, flags] = [data.segmentStream[at], data.segmentPool[at], data.segmentFlags[at]];
    const [addr, size] = [data.segmentAddr[at], data.segmentSize[at]];
    const small = (flags & 1) !== 0;
    const expandable = (flags & 2) !== 0;
    const previous = segments.at(-1);
    const isAdjacent = expandable && previous?.expandable && previous.addr + previous.size === addr;
    if (isAdjacent && previous.stream === stream && previous.pool === pool && previous.small === small)
      previous.size += size;
    else segments.push({ addr, size, stream, pool, small, expandable, ...NO_BLOCKS, holes: [], rows: [], range: at });
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

/** @param {Columns} data @param {number} m @param {Uint32Array} rows the live allocations @returns {Segment[]} by address */
export function segmentsWithBlocksAt(data, m, rows) {
  const segments = emptySegmentsAt(data, m);
  const unit = data.header.unit;
  // Address and index in one number: sorting needs no comparison function.
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
      if (data.freedAt[row] <= m) segment.pending += size;
      else segment.live += size;
      segment.rows.push(row);
      addHole(data, segment, free, addr);
      free = Math.max(free, addr + size);
    }
    addHole(data, segment, free, end);
  }
  return segments;
}

// Segments over time: rows for the timeline in mode "each segment", and one segment as text.

import { ALLOC, FREE_COMPLETED } from "./columns.js";
import { controls, make } from "./dom.js";
import { bytesText, countOf } from "./format.js";
import { poolName, segmentText } from "./map.js";
import { allocationTable, stackBlock } from "./selection.js";
import { device, moment, selectSegment, setMoment, view } from "./view.js";
/** @import { Columns } from "./columns.js" */

/** The ranges of device memory, in the form in which `Sweep` reads allocations. */
export class SegmentRows {
  /** @param {Columns} data */
  constructor(data) {
    const { segments, entries, segmentStart, segmentEnd, segmentSize, segmentStream, segmentPool, segmentFlags } = data;
    this.entries = entries;
    this.allocations = segments;
    this.allocatedAt = segmentStart;
    this.freedAt = segmentEnd;
    this.bytes = segmentSize.map((units) => units * data.header.unit);
    /** Pool, stream and size class of each: an index of `places`. */
    this.place = new Uint32Array(segments);
    /** @type {string[]} */
    this.places = [];
    /** @type {Map<string, number>} */
    const known = new Map();
    const order = [];
    for (let at = 0; at < segments; at += 1) {
      const small = segmentFlags[at] & 1 ? "requests up to 1 MiB" : "larger requests";
      const name = `${poolName(data, segmentPool[at])}, stream ${data.header.streams[segmentStream[at]]}, ${small}`;
      let place = known.get(name);
      if (place === undefined) {
        known.set(name, (place = this.places.length));
        this.places.push(name);
      }
      this.place[at] = place;
      order.push([segmentStart[at], at * 4 + ALLOC]);
      if (segmentEnd[at] <= entries) order.push([segmentEnd[at], at * 4 + FREE_COMPLETED]);
    }
    order.sort((a, b) => a[0] - b[0] || (a[1] & 3) - (b[1] & 3) || a[1] - b[1]);
    this.changes = Uint32Array.from(order, ([, change]) => change);
    this.changeStart = new Uint32Array(entries + 2);
    for (const [m] of order) this.changeStart[m + 1] += 1;
    for (let m = 1; m < this.changeStart.length; m += 1) this.changeStart[m] += this.changeStart[m - 1];
  }
}

/** The change of device memory at each moment that has one: the first range concerned, its address, and units gained or lost. @param {Columns} data @returns {Map<number, {at: number, addr: number, bytes: number}>} */
export function segmentChangesOf(data) {
  /** @type {Map<number, {at: number, addr: number, bytes: number}>} */
  const changes = new Map();
  /** @param {number} m @param {number} at @param {number} bytes */
  const add = (m, at, bytes) => {
    const addr = data.segmentAddr[at];
    const change = changes.get(m);
    if (!change) {
      changes.set(m, { at, addr, bytes });
      return;
    }
    change.bytes += bytes;
    if (bytes < 0) change.addr = Math.min(change.addr, addr);
    else if (addr === change.addr) change.addr += bytes;
  };
  // Ends first: a range that is cut ends, and its rest starts, in one entry.
  data.segmentEnd.forEach((end, at) => end <= data.entries && add(end, at, -data.segmentSize[at]));
  data.segmentStart.forEach((start, at) => start > 0 && add(start, at, data.segmentSize[at]));
  return changes;
}

/** @param {number} at a range of device memory */
export function segmentLifeText(at) {
  const { data } = device;
  const { unit } = data.header;
  const expandable = data.segmentFlags[at] & 2;
  const start = data.segmentStart[at];
  const [begins, ends] = expandable ? ["mapped", "unmapped"] : ["allocated", "released"];
  const from = start ? `${begins} at entry ${device.entryText(start)}` : "from before the first entry";
  const end = data.segmentEnd[at];
  const to = end <= data.entries ? `${ends} at entry ${device.entryText(end)}` : "kept to the end";
  return `${expandable ? "range of an expandable segment" : "segment"} of ${bytesText(data.segmentSize[at] * unit)} at ${data.address(data.segmentAddr[at])}, ${from}, ${to}`;
}

/** The selected segment: its life, its stacks and its blocks at the moment. @param {number} at @returns {Node[]} */
export function segmentDetails(at) {
  const { data } = device;
  const nodes = [
    make("p", {}, make("b", {}, device.segmentRows().places[device.segmentRows().place[at]])),
    make("p", {}, segmentLifeText(at)),
    controls(
      make("button", { onclick: () => setMoment(data.segmentStart[at]) }, "when it came"),
      make("button", { onclick: () => setMoment(Math.min(data.entries, data.segmentEnd[at])) }, "when it went"),
      make("button", { onclick: () => selectSegment(-1) }, "unselect"),
    ),
  ];
  const addr = data.segmentAddr[at];
  const segment = moment.segments.find((one) => one.addr <= addr && addr < one.addr + one.size);
  const isLive = data.segmentStart[at] <= view.moment && view.moment < data.segmentEnd[at];
  if (segment && isLive) {
    const rows = [...segment.rows].sort((a, b) => data.bytes[b] - data.bytes[a]).slice(0, 12);
    nodes.push(make("p", {}, `now: ${segmentText(segment)}, in ${countOf(segment.rows.length, "block")}`));
    nodes.push(allocationTable("Its largest blocks", rows));
  }
  nodes.push(...stackBlock("stack", data.segmentNode[at]));
  if (data.segmentFreeNode[at]) nodes.push(...stackBlock("released by", data.segmentFreeNode[at]));
  return nodes;
}

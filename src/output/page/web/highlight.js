// Highlighting: a search in stacks and names, a category, a line, a variable, or the blockers of a request. A query is one text, so that
// a link can contain it.

import { partition } from "./columns.js";
import { COMPARE_KEYS, isLive } from "./compare.js";
import { shortLine } from "./figures.js";
import { passing } from "./filter.js";
import { heldBlocks, heldText } from "./held.js";
import { keepingLines, keptLineText, keptQuery, keptRows } from "./kept.js";
import { momentAt } from "./moment.js";
import { blockerLine } from "./result.js";
import { device } from "./view.js";
/** @import { Columns } from "./columns.js" */
/** @import { Device } from "./device.js" */
/** @import { Segment } from "./space.js" */
/** @import { View } from "./view.js" */

/** Whether each allocation is highlighted, or null if there is no query. @param {Device} device @param {string} query @returns {Uint8Array | null} */
function highlightBy(device, query) {
  if (!query.trim()) return null;
  const blocker = /^blocker:(\d+)\.(\d+)$/.exec(query);
  if (blocker) return highlightedByBlocker(device, Number(blocker[1]), Number(blocker[2]));
  const keptLine = keptQuery(query);
  if (keptLine !== null) return keptRows(device, keptLine);
  const held = /^held:(\d+)$/.exec(query);
  if (held) return heldBlocks(device, Number(held[1]));
  const { data } = device;
  const between = /^(came|went|stayed):(\d+)-(\d+)$/.exec(query);
  if (between) return highlightedBetween(data, between[1], Number(between[2]), Number(between[3]));
  const kinds = highlightedKinds(device, query);
  const result = new Uint8Array(data.allocations);
  for (let row = 0; row < result.length; row += 1) result[row] = kinds[data.kind[row]];
  return result;
}

/** A query that no user types, in words; null for a search. @param {string} query @returns {string | null} */
export function queryLabel(query) {
  const blocker = /^blocker:(\d+)\.(\d+)$/.exec(query);
  if (blocker) {
    const found = device.analysis?.ooms?.[Number(blocker[1])]?.blockers?.[Number(blocker[2])];
    return `in the way${found ? `, of ${blockerLine(found)}` : ""}`;
  }
  const between = /^(came|went|stayed):(\d+)-(\d+)$/.exec(query);
  if (between) {
    const [from, to] = [Number(between[2]), Number(between[3])].map((m) => device.momentText(m));
    return `${between[1]} between A, ${from}, and B, ${to}`;
  }
  const keptLine = keptQuery(query);
  if (keptLine !== null) {
    const line = keepingLines(device)[keptLine];
    return line ? `kept by ${keptLineText(line)}` : "kept after every step";
  }
  const held = /^held:(\d+)$/.exec(query);
  if (held) return `held by ${heldText(Number(held[1]))}`;
  if (query === "stack:none") return "without a stack";
  const group = /^(category|line|variable):(.*)$/s.exec(query);
  return group && (group[1] === "line" ? shortLine(group[2]) : group[2]);
}

/** Whether each allocation passes the query and the filter; null without both. @param {Device} of @param {View} view */
export function highlightOf(of, { query, filter }) {
  const [byQuery, byFilter] = [highlightBy(of, query), passing(of, filter)];
  if (byQuery && byFilter) for (let row = 0; row < byQuery.length; row += 1) byQuery[row] &= byFilter[row];
  return byQuery ?? byFilter;
}

/** @param {Columns} data @param {string} fate @param {number} from @param {number} to */
function highlightedBetween(data, fate, from, to) {
  const result = new Uint8Array(data.allocations);
  for (let row = 0; row < result.length; row += 1) {
    const [before, after] = [isLive(data, row, from), isLive(data, row, to)];
    result[row] = (fate === "stayed" ? before && after : fate === "came" ? after && !before : before && !after) ? 1 : 0;
  }
  return result;
}

/** @param {Device} device @param {string} query @returns {Uint8Array} by kind */
function highlightedKinds(device, query) {
  const { data, stacks, groups } = device;
  const result = new Uint8Array(data.kinds);
  /** @type {(kind: number) => number | boolean} */
  let test;
  const group = /^(category|line|variable):(.*)$/s.exec(query);
  if (query === "stack:none") {
    test = (kind) => !stacks.hasBox[data.node[kind]];
  } else if (group) {
    const [, by, wanted] = group;
    const labelOf = COMPARE_KEYS[by](device);
    const { names, groupOfKind } = groups.category;
    test = (kind) => labelOf(kind) === wanted || (by === "category" && names[groupOfKind[kind]] === wanted);
  } else {
    const nodes = stacks.nodesWith(query.trim());
    const wanted = query.trim().toLowerCase();
    const hits = variablesWith(data, (name) => name.toLowerCase().includes(wanted));
    test = (kind) => nodes[data.node[kind]] || (data.variable[kind] > 0 && hits[data.variable[kind]]);
  }
  for (let kind = 0; kind < result.length; kind += 1) result[kind] = test(kind) ? 1 : 0;
  return result;
}

/** Whether each variable has a wanted name. @param {Columns} data @param {(name: string) => boolean} isWanted @returns {boolean[]} */
export function variablesWith({ header }, isWanted) {
  return (header.variables ?? []).map((/** @type {{name: string}} */ { name }) => isWanted(name));
}

/** The blocks of one row of a failure's blockers, at the moment of the failure. @param {Device} device @param {number} index of the failure @param {number} at */
function highlightedByBlocker(device, index, at) {
  const { data, stacks, analysis } = device;
  const result = new Uint8Array(data.allocations);
  const failure = data.header.failures.find((/** @type {any} */ candidate) => candidate.index === index);
  const blocker = analysis?.ooms?.[index]?.blockers?.[at];
  if (!failure || !blocker) return result;
  // Its stack is one of those of its line.
  const nodes = stacks.nodesOf(blocker.frames || []);
  const lines = new Set();
  for (let kind = 0; kind < data.kinds; kind += 1) if (nodes[data.node[kind]]) lines.add(stacks.lineOfKind[kind]);
  /** @param {number} row */
  const isOfLine = (row) => lines.has(stacks.lineOfKind[data.kind[row]]);
  for (const segment of momentAt(device, failure.moment).segments) {
    for (let from = 0; from < segment.rows.length; from += 1) {
      const first = from;
      while (from < segment.rows.length && isOfLine(segment.rows[from])) from += 1;
      if (from > first) for (const row of blockingRows(data, segment, first, from)) result[row] = 1;
    }
  }
  return result;
}

/**
 * Of adjacent blocks `from..to` of one line, those that keep free memory apart: beside a free block, or in a granule
 * that could be returned to the device without them.
 * @param {Columns} data @param {Segment} segment @param {number} from @param {number} to
 * @returns {number[]}
 */
function blockingRows(data, segment, from, to) {
  const { unit, granules, pools } = data.header;
  /** @param {number} at */
  const endOf = (at) => data.addr[segment.rows[at]] + data.bytes[segment.rows[at]] / unit - segment.addr;
  const start = from ? endOf(from - 1) : 0;
  const end = to < segment.rows.length ? data.addr[segment.rows[to]] - segment.addr : segment.size;
  const granule = segment.expandable ? granules[segment.small ? 0 : 1] / unit : segment.size;
  const goesBack =
    pools[segment.pool] === "0:0"
      ? [Math.ceil(start / granule) * granule, Math.floor(end / granule) * granule]
      : [0, 0];
  const holes = segment.holes.slice(firstHole(segment, start), firstHole(segment, end));
  let hole = 0;
  return segment.rows.slice(from, to).filter((row, at) => {
    const [first, last] = [data.addr[row] - segment.addr, endOf(from + at)];
    while (hole < holes.length && holes[hole].addr - segment.addr < first) hole += 1;
    const before = hole ? holes[hole - 1].addr + holes[hole - 1].size - segment.addr : -1;
    const after = hole < holes.length ? holes[hole].addr - segment.addr : Infinity;
    const low = Math.max(Math.floor(first / granule) * granule, goesBack[0]);
    const high = Math.min(Math.ceil(last / granule) * granule, goesBack[1]);
    return before >= first || after <= last || (low < high && (before > low || after < high));
  });
}

/** Index of the first free block at or after an offset in its segment. @param {Segment} segment @param {number} offset */
function firstHole({ addr, holes }, offset) {
  return partition(holes.length, (at) => holes[at].addr - addr < offset);
}

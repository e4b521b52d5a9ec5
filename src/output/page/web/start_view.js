// The view that a page opens with. An address changes parts of it, and leaves the others as they are here.

import { KEPT } from "./kept.js";
/** @import { Device } from "./device.js" */
/** @import { View } from "./view.js" */

/** The timeline opens on this share of the trace before a failure, ... */
const FIRST_SHARE = 0.15;
/** ... on this many step ends before it, ... */
const FIRST_STEPS = 3;
/** ... and on this many entries, which are wide enough to be seen: whichever is the longest. */
const FIRST_ENTRIES = 300;
/** But the step that failed has at least a quarter of the width. */
const FIRST_STEP_TIMES = 3.5;

/** The view of a page with `changes`, as an address has them. @param {Device} of @param {number} page @param {Partial<View>} changes @returns {View} */
export function startView(of, page, changes) {
  const [start, end] = firstZoom(of, changes.moment ?? of.firstMoment());
  return {
    page,
    moment: of.firstMoment(),
    start,
    end,
    mode: of.firstMode(),
    axis: "entry",
    selected: -1,
    segment: -1,
    query: of.data.header.proof === "kept" ? KEPT : "",
    filter: "",
    only: false,
    from: -1,
    fromPage: page,
    root: 0,
    callers: false,
    pane: "result",
    ...changes,
  };
}

/** The last steps before the failure at a moment; the whole trace at any other moment. @param {Device} of @param {number} m @returns {[number, number]} */
function firstZoom(of, m) {
  const all = of.data.entries + 1;
  if (!of.failureAt(m)) return [0, all];
  /** @type {number[]} */
  const ends = of.data.header.steps;
  const steps = ends.filter((end) => end < m).at(-FIRST_STEPS) ?? (ends.length ? 0 : m);
  const failing = m - (ends.findLast((end) => end < m) ?? 0);
  const wide = Math.min(steps, m * (1 - FIRST_SHARE), m - FIRST_ENTRIES);
  const start = Math.floor(Math.max(0, wide, ends.length ? m - FIRST_STEP_TIMES * failing : 0));
  return [start, Math.min(all, m + 1 + Math.ceil((m - start) * 0.05))];
}

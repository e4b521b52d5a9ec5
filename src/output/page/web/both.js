// Two runs over one axis: allocated memory of A's device and of the one shown, aligned by training step, with the difference
// between them as a band.

import { COMPARE_KEYS, compareBy, compared, setFrom } from "./compare.js";
import { byId, pointIn } from "./dom.js";
import { bytesText } from "./format.js";
import { clearCanvas, label } from "./overlay.js";
import { theme } from "./theme.js";
import { device, setMoment, view } from "./view.js";
/** @import { Device } from "./device.js" */

/** A difference arises where it first has this share of its largest value. */
const ARISES = 0.5;
/** Columns in which it is looked for. */
const BOTH_COLUMNS = 2000;

/** The moments of both runs in each column. A step is as wide as the longer of the two. @param {Device} a @param {Device} b @param {number} columns @returns {{a: number, b: number}[]} */
function alignedMoments(a, b, columns) {
  const edges = [a, b].map(({ data }) => [0, ...data.header.steps, data.entries + 1]);
  const count = Math.max(...edges.map((one) => one.length)) - 1;
  const edge = (/** @type {number} */ run, /** @type {number} */ at) => edges[run][Math.min(at, edges[run].length - 1)];
  const starts = [0];
  for (let at = 0; at < count; at += 1)
    starts.push(starts[at] + Math.max(...[0, 1].map((run) => edge(run, at + 1) - edge(run, at))));
  const place = (/** @type {number} */ run, /** @type {number} */ x, /** @type {number} */ step) => {
    const share = (x - starts[step]) / (starts[step + 1] - starts[step] || 1);
    return edge(run, step) + share * (edge(run, step + 1) - edge(run, step));
  };
  let step = 0;
  /** @param {Device} of @param {number} from @param {number} to */
  const busiest = (of, from, to) => {
    const first = Math.min(of.data.entries, Math.floor(from));
    return of.totals.peaks.argmax(first, Math.min(of.data.entries + 1, Math.max(first + 1, Math.ceil(to))));
  };
  return Array.from({ length: columns }, (_, column) => {
    const [from, to] = [column, column + 1].map((one) => (one / columns) * starts[count]);
    while (step + 1 < count && from >= starts[step + 1]) step += 1;
    const end = Math.min(to, starts[step + 1]);
    const [atA, atB] = [a, b].map((of, run) => busiest(of, place(run, from, step), place(run, end, step)));
    return { a: atA, b: atB };
  });
}

/** The two devices that are compared over one axis, or null. @returns {[Device, Device] | null} */
function bothRuns() {
  const pair = compared();
  return pair?.isOther && pair.a.data.entries && device.data.entries ? [pair.a, device] : null;
}

export function drawBoth() {
  const runs = bothRuns();
  byId("both-section").hidden = !runs;
  const drawn = runs && clearCanvas("both");
  if (!runs || !drawn) return;
  const [context, width, height] = drawn;
  const [a, b] = runs;
  const moments = alignedMoments(a, b, Math.max(1, Math.floor(width)));
  const values = moments.map((at) => [a.totals.allocated[at.a], b.totals.allocated[at.b]]);
  const top = values.reduce((most, pair) => Math.max(most, ...pair), 1) * 1.05;
  const y = (/** @type {number} */ bytes) => height - (bytes / top) * height;
  context.globalAlpha = 0.55;
  for (const [x, [before, after]] of values.entries()) {
    context.fillStyle = after > before ? theme.bad : theme.good;
    context.fillRect(x, y(Math.max(before, after)), 1, y(Math.min(before, after)) - y(Math.max(before, after)));
  }
  context.globalAlpha = 1;
  for (const [run, colour] of [theme.muted, theme.fore].entries()) {
    context.strokeStyle = colour;
    context.beginPath();
    values.forEach((pair, x) => context.lineTo(x, y(pair[run])));
    context.stroke();
  }
  context.fillStyle = theme.accent;
  const now = moments.findIndex((at) => at.b >= view.moment);
  context.fillRect(now < 0 ? width - 2 : now, 0, 2, height);
  label(context, bytesText(top / 1.05), 4, 14, theme.fore);
}

/** Bytes of a label at each moment. @param {Device} of @param {string} name */
function bytesOfLabel(of, name) {
  const labelOf = COMPARE_KEYS[compareBy](of);
  const isOf = Uint8Array.from({ length: of.data.kinds }, (_, one) => (labelOf(one) === name ? 1 : 0));
  return of.data.liveBytes((row) => isOf[of.data.kind[row]]);
}

/** Goes to where the difference of a label between both runs arises. @param {string} name */
export function goToDifference(name) {
  const runs = bothRuns();
  if (!runs) return;
  const moments = alignedMoments(...runs, BOTH_COLUMNS);
  const [before, after] = runs.map((of) => bytesOfLabel(of, name));
  const change = moments.map((at) => Math.abs(after[at.b] - before[at.a]));
  const most = Math.max(...change);
  const at = moments[change.findIndex((one) => one >= most * ARISES)];
  setMoment(at.b);
  setFrom(at.a, view.fromPage);
}

export function wireBoth() {
  const canvas = byId("both");
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const runs = bothRuns();
    if (!runs) return;
    const columns = Math.max(1, Math.floor(canvas.clientWidth));
    const at = alignedMoments(...runs, columns)[Math.min(columns - 1, Math.floor(pointIn(event, canvas)[0] * columns))];
    setMoment(at.b);
    setFrom(at.a, view.fromPage);
  });
}

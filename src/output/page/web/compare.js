// The pane "Compare": what came, went and stayed between A and the moment, B; or A on another device or in another file.

import { goToDifference } from "./both.js";
import { showPane } from "./dock.js";
import { byId, bytesCell, controls, make, makeTable, mutedText, press, wireChoice } from "./dom.js";
import { shortLine } from "./figures.js";
import { bytesText, countOf } from "./format.js";
import { categoryName } from "./groups.js";
import { openDevice, parseJsonElement } from "./main.js";
import { pages } from "./pages.js";
import { device, queryButton, redraw, setMoment, setQuery, view } from "./view.js";
/** @import { Columns } from "./columns.js" */
/** @import { Device } from "./device.js" */
/** @import { View } from "./view.js" */

const COMPARE_ROWS = 40;
/** By which property: a name of `COMPARE_KEYS`. */
export let compareBy = "line";
/** The device of A, if it is not the one shown. @type {{page: number, device: Device} | null} */
let otherDevice = null;

/** The label of each kind of allocation. @type {Record<string, (of: Device) => (kind: number) => string>} */
export const COMPARE_KEYS = {
  line: (of) => (kind) => of.stacks.lineLabel(of.stacks.lineOfKind[kind]),
  category: (of) => (kind) => categoryName(of.data, kind),
  variable: (of) => (kind) => of.data.header.variables?.[of.data.variable[kind]]?.name ?? "not named",
};

/**
 * @typedef {object} Compared
 * @property {string} label
 * @property {number} came bytes; those of B if A is on another device
 * @property {number} went bytes; those of A if A is on another device
 * @property {number} stayed
 */

/** Whether an allocation is live. @param {Columns} data @param {number} row @param {number} m */
export function isLive(data, row, m) {
  return data.allocatedAt[row] <= m && data.freedAt[row] > m;
}

/**
 * Bytes by label, those with the largest change first.
 * @param {Device} a @param {number} from @param {Device} b @param {number} to @param {string} by
 * @returns {{rows: Compared[], came: number[], went: number[], stayed: number[]}} sums as bytes and blocks
 */
export function compareMoments(a, from, b, to, by) {
  /** @type {Map<string, Compared>} */
  const rows = new Map();
  const sums = { came: [0, 0], went: [0, 0], stayed: [0, 0] };
  /** @param {Device} of @param {(kind: number) => string} label @param {number} row @param {"came" | "went" | "stayed"} fate */
  const add = (of, label, row, fate) => {
    const text = label(of.data.kind[row]);
    let sum = rows.get(text);
    if (!sum) rows.set(text, (sum = { label: text, came: 0, went: 0, stayed: 0 }));
    sum[fate] += of.data.bytes[row];
    sums[fate][0] += of.data.bytes[row];
    sums[fate][1] += 1;
  };
  const [labelOfA, labelOfB] = [COMPARE_KEYS[by](a), COMPARE_KEYS[by](b)];
  for (const row of a.sweep.live(from)) {
    if (!isLive(a.data, row, from)) continue;
    add(a, labelOfA, row, a === b && isLive(b.data, row, to) ? "stayed" : "went");
  }
  for (const row of b.sweep.live(to))
    if (isLive(b.data, row, to) && (a !== b || !isLive(b.data, row, from))) add(b, labelOfB, row, "came");
  const change = (/** @type {Compared} */ one) => one.came - one.went;
  const sorted = [...rows.values()].sort(
    (x, y) => Math.abs(change(y)) - Math.abs(change(x)) || y.came - x.came || (x.label < y.label ? -1 : 1),
  );
  return { rows: sorted, ...sums };
}

/** A's device and moment, and B's; null without A. @returns {{a: Device, from: number, to: number, isOther: boolean} | null} */
export function compared() {
  if (view.from < 0) return null;
  if (view.fromPage === view.page) {
    const [from, to] = view.from <= view.moment ? [view.from, view.moment] : [view.moment, view.from];
    return { a: device, from: Math.min(from, device.data.entries), to, isOther: false };
  }
  if (otherDevice?.page !== view.fromPage) return null;
  const { device: a } = otherDevice;
  return { a, from: Math.min(view.from, a.data.entries), to: view.moment, isOther: true };
}

/** Sets A. @param {number} m @param {number} [page] */
export function setFrom(m, page = view.page) {
  view.from = m;
  view.fromPage = page;
  if (m >= 0) showPane("compare");
  loadOther();
  redraw("overlay", "compare", "hash");
}

/** Decodes the device of A, if it is another one. */
async function loadOther() {
  const page = view.fromPage;
  if (view.from < 0 || page === view.page || otherDevice?.page === page || !pages[page]) return;
  const opened = await openDevice(page);
  otherDevice = { page, device: opened };
  redraw("compare", "both");
}

/** The view of a page of `--diff`: the second file at its peak, beside the first. @returns {Promise<Partial<View> | null>} */
export async function comparedView() {
  if (!parseJsonElement("compared")) return null;
  const first = pages.findIndex((page) => page.snapshot === 0);
  const ofSecond = (/** @type {any} */ page) => page.snapshot === 1;
  const same = pages.findIndex((page) => ofSecond(page) && page.device === pages[first]?.device);
  const second = same >= 0 ? same : pages.findIndex(ofSecond);
  if (first < 0 || second < 0) return null;
  const [a, b] = [await openDevice(first), await openDevice(second)];
  const [from, to] = [a.totals.peak, b.totals.peak];
  const { rows } = compareMoments(a, from, b, to, "line");
  // The columns may lack small allocations.
  const [before, after] = [a.page.peak_allocated_bytes, b.page.peak_allocated_bytes];
  const change = rows[0] ? rows[0].came - rows[0].went : 0;
  const most = change ? `; most at ${rows[0].label}: ${signedBytes(change)}` : "";
  const difference = after === before ? "no difference" : signedBytes(after - before);
  const text = `peak allocated ${bytesText(before)} in ${a.page.title}, ${bytesText(after)} in ${b.page.title}: ${difference}${most}`;
  const headline = /** @type {any} */ (document.querySelector(".head h1"));
  headline.replaceChildren(make("strong", {}, text));
  headline.title = text;
  return { page: second, moment: to, from, fromPage: first, pane: "compare" };
}

/** A and B at two ends of training steps. @param {number} a @param {number} b indexes of steps, from the end if negative */
function compareSteps(a, b) {
  const { steps } = device.data.header;
  setMoment(steps.at(b));
  setFrom(steps.at(a));
}

export function drawCompare() {
  if (view.pane !== "compare") return;
  const { steps } = device.data.header;
  for (const id of ["last-steps", "all-steps"]) byId(id).hidden = steps.length < 2;
  byId("clear-from").hidden = view.from < 0;
  press("by", compareBy);
  const body = byId("comparison");
  const pair = compared();
  if (!pair) {
    const text = "Mark a moment as A. This pane then shows what came, went and stayed from A to the moment you go to.";
    body.replaceChildren(mutedText(view.from < 0 ? text : "…"));
    return;
  }
  body.replaceChildren(...comparisonElements(pair, compareMoments(pair.a, pair.from, device, pair.to, compareBy)));
}

/** @param {any} pair @param {ReturnType<typeof compareMoments>} result @returns {Node[]} */
function comparisonElements({ a, from, to, isOther }, { rows, came, went, stayed }) {
  const [atA, atB] = [a.totals.allocated[from], device.totals.allocated[to]];
  const name = (/** @type {Device} */ of) => (isOther ? `${of.page.title}, ` : "");
  const heads = isOther ? ["#change", "#A", "#B", compareBy] : ["#change", "#came", "#went", "#stayed", compareBy];
  const cells = rows.slice(0, COMPARE_ROWS).map((one) => {
    const change = one.came - one.went;
    const sums = isOther ? [one.went, one.came] : [one.came, one.went, one.stayed];
    const label = compareBy === "line" ? shortLine(one.label) : one.label;
    return [bytesCell(change, signedBytes(change)), ...sums.map((sum) => bytesCell(sum)), label];
  });
  const nodes = [
    make("p", {}, `A: ${name(a)}${a.momentText(from)}, ${bytesText(atA)} allocated`),
    make("p", {}, `B: ${name(device)}${device.momentText(to)}, ${bytesText(atB)} allocated`),
    make("p", {}, make("b", { id: "change" }, `${signedBytes(atB - atA)} from A to B`)),
  ];
  if (!isOther) {
    const fates = Object.entries({ came, went, stayed }).map(([fate, [bytes, blocks]]) =>
      queryButton(`${fate}:${from}-${to}`, {}, `${fate} ${bytesText(bytes)} in ${countOf(blocks, "block")}`),
    );
    nodes.push(controls(...fates));
  }
  const caption = `${countOf(rows.length, compareBy === "category" ? "group" : compareBy)}, the largest changes first`;
  const table = makeTable(caption, heads, cells, (at) => {
    goToDifference(rows[at].label);
    setQuery(`${compareBy}:${rows[at].label}`);
  });
  table.classList.add("stacked");
  nodes.push(table);
  return nodes;
}

/** @param {number} bytes */
function signedBytes(bytes) {
  return bytes > 0 ? `+${bytesText(bytes)}` : bytesText(bytes);
}

export function wireCompare() {
  byId("mark-from").addEventListener("click", () => setFrom(view.moment));
  byId("zoom-ends").addEventListener("click", () => {
    const from = Math.floor(view.start);
    setMoment(Math.min(device.data.entries, Math.ceil(view.end) - 1));
    setFrom(from);
  });
  byId("last-steps").addEventListener("click", () => compareSteps(-2, -1));
  byId("all-steps").addEventListener("click", () => compareSteps(0, -1));
  byId("clear-from").addEventListener("click", () => setFrom(-1));
  wireChoice("by", (by) => {
    compareBy = by;
    redraw("compare");
  });
}

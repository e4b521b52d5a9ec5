// Drawn over and below the timeline: the scale, failures and other marks, the moment; steps, phases and ranges.

import { partition } from "./columns.js";
import { byId, fitCanvas, make, pointIn } from "./dom.js";
import { bytesText, countText } from "./format.js";
import { lineColour } from "./groups.js";
import { momentOfX, xOfMoment } from "./raster.js";
import { wireTooltip } from "./selection.js";
import { pixelOf, textColourOn, theme } from "./theme.js";
import { draggedRange, topBytes } from "./timeline.js";
import { device, view } from "./view.js";

/** None is that of a category. @type {Record<string, string>} */
const PHASE_COLOURS = {
  init: "#6a2e0a",
  data: "#76762e",
  forward: "#829aca",
  backward: "#16526a",
  optimizer: "#9aeeca",
  other: "#162e52",
};
/** As programs and papers shorten them. @type {Record<string, string>} */
const SHORT_PHASES = { forward: "fwd", backward: "bwd", optimizer: "opt" };
/** Letters that a name keeps at least when it is cut. */
const MIN_CUT_LABEL = 8;
/** @type {Record<string, string>} */
const MARK_LABELS = {
  reclaim: "memory freed for a request",
  "empty-cache": "cache emptied",
  snapshot: "snapshot",
};
/** Maximum number of rows for named ranges. */
const RANGE_ROWS = 3;

/** Fills a rectangle that shows what is below it. @param {CanvasRenderingContext2D} context @param {number} alpha @param {number} x @param {number} y @param {number} width @param {number} height */
export function fillFaint(context, alpha, x, y, width, height) {
  context.globalAlpha = alpha;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
}

/** Text with a background. @param {CanvasRenderingContext2D} context @param {string} text @param {number} x @param {number} y @param {string} colour */
export function label(context, text, x, y, colour) {
  const width = context.measureText(text).width;
  context.fillStyle = theme.back;
  fillFaint(context, 0.85, x - 3, y - 11, width + 6, 15);
  context.fillStyle = colour;
  context.fillText(text, x, y);
  return width;
}

/** Clears a canvas, to draw on in CSS pixels. @param {string} id @returns {[CanvasRenderingContext2D, number, number] | null} */
export function clearCanvas(id) {
  const canvas = byId(id);
  const [width, height, ratio] = fitCanvas(canvas);
  if (!width || !height) return null;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return [context, width / ratio, height / ratio];
}

export function drawOverlay() {
  const drawn = clearCanvas("overlay");
  if (!drawn) return;
  const [context, width, height] = drawn;
  drawScale(context, width, height);
  drawCapacity(context, width, height);
  drawMarks(context, width);
  drawFailures(context, width, height);
  drawSelected(context, width, height);
  const x = xOfMoment(view.moment + 0.5) * width;
  if (view.from >= 0 && view.fromPage === view.page) drawFrom(context, xOfMoment(view.from + 0.5) * width, x, height);
  context.fillStyle = theme.accent;
  context.fillRect(x - 1, 0, 2, height);
  if (!draggedRange) return;
  fillFaint(context, 0.18, draggedRange[0] * width, 0, (draggedRange[1] - draggedRange[0]) * width, height);
}

/** Moment A of the comparison, and the range up to the moment. @param {CanvasRenderingContext2D} context @param {number} a @param {number} b @param {number} height */
function drawFrom(context, a, b, height) {
  context.fillStyle = theme.accent;
  fillFaint(context, 0.12, Math.min(a, b), 0, Math.abs(b - a), height);
  context.fillRect(a - 1, 0, 2, height);
  label(context, "A", a + 5, height - 8, theme.accent);
  label(context, "B", b < a ? b - 14 : b + 5, height - 8, theme.accent);
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
function drawScale(context, width, height) {
  const step = niceStep(topBytes / 5);
  for (let bytes = step; bytes < topBytes * 0.97; bytes += step) {
    const y = height - (bytes / topBytes) * height;
    context.fillStyle = theme.fore;
    fillFaint(context, 0.18, 0, y, width, 1);
    if (y > 18) label(context, bytesText(bytes), 6, y - 4, theme.fore);
  }
}

/** The size of the device as a line, or its name at the edge. @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
function drawCapacity(context, width, height) {
  const { capacity } = device;
  if (!capacity || view.only) return;
  const isIn = capacity <= topBytes;
  const y = height - (capacity / topBytes) * height;
  const text = `${bytesText(capacity)} ${device.analysis.capacity_bytes ? "on the device" : "within reach"}`;
  label(context, isIn ? text : `↑ ${text}`, 70, isIn ? Math.max(12, y - 4) : 14, theme.fore);
  if (isIn) drawDashed(context, [8, 5], theme.fore, [0, y, width, y]);
}

/** @param {CanvasRenderingContext2D} context @param {number[]} dash @param {string} colour @param {number[]} ends */
function drawDashed(context, dash, colour, [fromX, fromY, toX, toY]) {
  context.strokeStyle = colour;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
  context.setLineDash([]);
}

/** A power of two near `bytes`. @param {number} bytes */
function niceStep(bytes) {
  return 2 ** Math.max(0, Math.ceil(Math.log2(bytes * 0.75)));
}

/** @param {CanvasRenderingContext2D} context @param {number} width */
function drawMarks(context, width) {
  let last = -1;
  for (const mark of device.data.header.marks || []) {
    const x = xOfMoment(mark.moment) * width;
    if (x < 0 || x > width || x - last < 1) continue;
    last = x;
    context.fillStyle = mark.kind === "reclaim" ? theme.bad : theme.muted;
    context.beginPath();
    context.moveTo(x - 4, 0);
    context.lineTo(x + 4, 0);
    context.lineTo(x, 7);
    context.fill();
  }
}

/** The kinds of marks in the trace, with their number and bytes. @returns {Node[]} */
export function marksLegend() {
  /** @type {Map<string, {count: number, bytes: number}>} */
  const kinds = new Map();
  for (const { kind, bytes } of device.data.header.marks || []) {
    const sum = kinds.get(kind) ?? { count: 0, bytes: 0 };
    kinds.set(kind, { count: sum.count + 1, bytes: sum.bytes + bytes });
  }
  return [...kinds].map(([kind, { count, bytes }]) => {
    const sign = make("span", { class: kind === "reclaim" ? "bad" : null }, "▾");
    const sum = bytes ? `, ${bytesText(bytes)}` : "";
    return make("span", {}, sign, ` ${countText(count)} × ${MARK_LABELS[kind] ?? kind}${sum}`);
  });
}

/** Descriptions of the marks near a position. @param {number} x 0 to 1 @param {number} near @returns {string[]} */
export function marksNear(x, near) {
  const isNear = (/** @type {any} */ mark) => Math.abs(xOfMoment(mark.moment) - x) < near;
  const marks = (device.data.header.marks || []).filter(isNear).slice(0, 5);
  return marks.map((/** @type {any} */ { kind, bytes, moment }) => {
    const word = MARK_LABELS[kind] || kind;
    return `▾ ${word}${bytes ? `, ${bytesText(bytes)}` : ""}, at entry ${device.entryText(moment)}`;
  });
}

/** Description of a position: the step, the phase, the named ranges. @param {number} x 0 to 1 */
function bandsText(x) {
  const m = Math.max(0, Math.min(device.data.entries, Math.floor(momentOfX(x))));
  const { steps, first_step: first, phase_runs: runs = [], phases, ranges = [] } = device.data.header;
  const lines = [device.momentText(m)];
  if (steps.length)
    lines.push(`step ${countText(first + steps.filter((/** @type {number} */ end) => end <= m).length)}`);
  const run = runs.findLast((/** @type {[number, number]} */ one) => one[0] <= m);
  if (run) lines.push(`phase: ${phases[run[1]]}`);
  for (const range of ranges) if (range.start <= m && m < range.end) lines.push(range.name);
  return lines.slice(0, 12).join("\n");
}

export function wireBands() {
  const canvas = byId("bands");
  wireTooltip(canvas, (event) => bandsText(pointIn(event, canvas)[0]));
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
function drawFailures(context, width, height) {
  if (view.only) return;
  let freeFrom = -1;
  for (const failure of device.data.header.failures) {
    const x = Math.min(xOfMoment(failure.moment + 0.5) * width, xOfMoment(failure.moment) < 1 ? width - 3 : Infinity);
    if (x < 0 || x > width) continue;
    const bottom = height - (device.totals.allocated[failure.moment] / topBytes) * height;
    const top = Math.max(0, bottom - (failure.requested_bytes / topBytes) * height);
    context.fillStyle = theme.bad;
    fillFaint(context, 0.75, x - 3, top, 6, bottom - top);
    drawDashed(context, [5, 3], theme.bad, [x, 0, x, height]);
    const text = `failed: ${bytesText(failure.requested_bytes)} requested`;
    const wide = context.measureText(text).width + 12;
    const at = x + wide > width ? x - wide : x + 6;
    if (at > freeFrom) freeFrom = at + label(context, text, at, 36, theme.bad) + 10;
  }
}

/** The lifetime of the selected allocation. @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
function drawSelected(context, width, height) {
  if (view.selected < 0) return;
  const { allocatedAt, completedAt, entries } = device.data;
  const from = Math.max(0, xOfMoment(allocatedAt[view.selected]) * width);
  const to = Math.min(width, xOfMoment(Math.min(completedAt[view.selected], entries + 1)) * width);
  context.fillStyle = theme.accent;
  context.fillRect(from, height - 4, Math.max(2, to - from), 4);
}

/** The bands below the timeline: phases, named ranges, and the axis with the ends of steps. */
export function drawBands() {
  const drawn = clearCanvas("bands");
  if (!drawn) return;
  const [context, width] = drawn;
  const { header } = device.data;
  let y = 0;
  if (header.phase_runs?.length > 1) {
    drawPhases(context, width, y);
    y += 15;
  }
  drawRanges(context, width, y);
  drawAxis(context, width, y + rangeRows() * 15);
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} y */
function drawPhases(context, width, y) {
  const { phase_runs: runs, phases } = device.data.header;
  const first = Math.max(0, partition(runs.length, (at) => runs[at][0] <= view.start) - 1);
  let drawnTo = -1;
  for (let at = first; at < runs.length && runs[at][0] < view.end; at += 1) {
    const from = Math.max(0, xOfMoment(runs[at][0]) * width);
    const to = Math.min(width, xOfMoment(at + 1 < runs.length ? runs[at + 1][0] : device.data.entries + 1) * width);
    if (to < drawnTo + 0.5) continue;
    drawnTo = to;
    const word = phases[runs[at][1]];
    box(context, word, SHORT_PHASES[word] ?? word, PHASE_COLOURS[word] || PHASE_COLOURS.other, from, to, y);
  }
}

/**
 * A band with its name, with the short one if that alone fits, or with none.
 * @param {CanvasRenderingContext2D} context @param {string} text @param {string} short @param {string} colour
 * @param {number} from @param {number} to @param {number} y
 */
function box(context, text, short, colour, from, to, y) {
  context.fillStyle = colour;
  context.fillRect(from, y, Math.max(1, to - from - 1), 13);
  context.font = "11px system-ui, sans-serif";
  const room = to - from - 6;
  if (room < 16) return;
  /** @param {string} one */
  const fits = (one) => context.measureText(one).width <= room;
  let shown = [text, short].find(fits);
  if (!shown && text === short && text.length > MIN_CUT_LABEL) {
    let length = text.length - 1;
    while (length >= MIN_CUT_LABEL && !fits(`${text.slice(0, length)}…`)) length -= 1;
    if (length >= MIN_CUT_LABEL) shown = `${text.slice(0, length)}…`;
  }
  if (!shown) return;
  context.fillStyle = textColourOn(pixelOf(colour));
  context.fillText(shown, from + 3, y + 10);
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} y */
function drawRanges(context, width, y) {
  const ends = new Array(rangeRows()).fill(-1);
  for (const range of device.data.header.ranges || []) {
    if (range.end <= view.start || range.start >= view.end) continue;
    const from = Math.max(0, xOfMoment(range.start) * width);
    const to = Math.min(width, Math.max(from + 2, xOfMoment(range.end) * width));
    const row = ends.findIndex((end) => end <= from + 0.5);
    if (row < 0) continue;
    ends[row] = to;
    // `Optimizer.step#AdamW.step`: the part before the # says enough.
    const short = range.name.split("#")[0] || range.name;
    box(context, range.name, short, lineColour(hashText(range.name)), from, to, y + row * 15);
  }
}

/** Number of rows for the ranges of the whole trace. */
function rangeRows() {
  const ends = new Array(RANGE_ROWS).fill(-1);
  for (const range of device.data.header.ranges || []) {
    const row = ends.findIndex((end) => end <= range.start);
    if (row >= 0) ends[row] = range.end;
  }
  return ends.filter((end) => end >= 0).length;
}

/** @param {string} text */
function hashText(text) {
  let hash = 7;
  for (const letter of text) hash = (hash * 31 + (letter.codePointAt(0) || 0)) >>> 0;
  return hash;
}

/** 1, 2 or 5 times a power of ten, at least `wanted`. @param {number} wanted */
function roundStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(wanted));
  return power * ([1, 2, 5].find((digit) => digit * power >= wanted * 0.999) ?? 10);
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} y */
function drawAxis(context, width, y) {
  context.fillStyle = theme.muted;
  context.textAlign = "center";
  const isEntry = view.axis === "entry";
  const before = device.data.header.first_event - 1;
  const [from, to] = isEntry
    ? [view.start + before, view.end + before]
    : [device.data.timeAt(view.start) / 1e6, device.data.timeAt(view.end) / 1e6];
  const step = roundStep(Math.max(((to - from) * 130) / width, isEntry ? 1 : 1e-6));
  for (let value = Math.ceil(from / step) * step; value < to; value += step) {
    const x = ((value - from) / (to - from)) * width;
    if (value < 0 || x < 60 || x > width - 30) continue;
    context.fillRect(x, y, 1, 4);
    context.fillText(isEntry ? countText(value) : `${Number(value.toFixed(6))} s`, x, y + 15);
  }
  context.textAlign = "start";
  context.fillText(isEntry ? "entry" : "time", 2, y + 15);
  let [last, free] = [-10, -1];
  const { steps, first_step: first } = device.data.header;
  for (const [number, end] of steps.entries()) {
    const x = xOfMoment(end) * width;
    if (x < 0 || x > width || x - last < 6) continue;
    context.fillStyle = theme.fore;
    context.fillRect(x, y, 1, 6);
    last = x;
    context.fillStyle = theme.muted;
    const text = `step ${first + number} ends`;
    const at = Math.min(x + 3, width - 80);
    if (at < free) continue;
    context.fillText(text, at, y + 30);
    free = at + 90;
  }
}

/** Height of the bands below the timeline. */
export function bandsHeight() {
  const { header } = device.data;
  return (header.phase_runs?.length > 1 ? 15 : 0) + rangeRows() * 15 + (header.steps?.length ? 34 : 20);
}

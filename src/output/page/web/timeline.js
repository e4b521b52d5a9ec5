// The timeline: memory over time, and its pointer events.

import { groups, pixels } from "./colours.js";
import { byId, fitCanvas, pointIn } from "./dom.js";
import { bytesText, secondsText } from "./format.js";
import { foundOverTime, onlyRows } from "./found.js";
import { marksNear } from "./overlay.js";
import { momentOfX, momentsOfColumns, paintBands, paintEach, repeatColumn, stackedRows, sweepBands } from "./raster.js";
import { segmentLifeText } from "./segments.js";
import { allocationText, showTooltip } from "./selection.js";
import { KEYFRAME_INTERVAL } from "./sweep.js";
import { device, redraw, select, selectSegment, setMoment, setZoom, view } from "./view.js";
/** @import { StackedRows } from "./raster.js" */

/** The moment shown by each column. */
let shownMoments = new Uint32Array(0);
/** Bytes at the top edge. */
export let topBytes = 1;
/** @type {ImageData | null} */
let timelineImage = null;
/** Measured milliseconds to paint one allocation in one column. */
let msPerRow = 4e-6;
let refineTimer = 0;
let isFine = false;
/** Milliseconds for one frame. If painting takes longer, fewer columns are painted at first, and all when idle. */
const FRAME = 16;
/** How many times as large as the memory in the picture the device may be to be drawn to scale. */
const MAX_CAPACITY_RATIO = 1.5;
/** The range that a drag has chosen so far, 0 to 1. @type {[number, number] | null} */
export let draggedRange = null;

export function drawTimeline() {
  const canvas = byId("timeline");
  const [width, height] = fitCanvas(canvas);
  if (!width || !height) return;
  const context = canvas.getContext("2d", { alpha: false });
  if (!timelineImage || timelineImage.width !== width || timelineImage.height !== height)
    timelineImage = context.createImageData(width, height);
  const out = new Uint32Array(/** @type {ImageData} */ (timelineImage).data.buffer);
  shownMoments = momentsOfColumns(width);
  scaleTimeline(height);
  const scale = height / topBytes;
  const isOnly = view.only && view.mode !== "segment";
  if (isOnly) out.fill(pixels.back);
  else paintReserved(out, width, height, scale);
  if (stackedRows()) {
    sweepEach(out, width, height, scale);
  } else {
    const paint = paintBands(out, width, height, scale);
    sweepBands(shownMoments, paint);
  }
  if (!isOnly) {
    paintUndrawn(out, width, height, scale);
    paintReservedLine(out, width, height, scale);
  }
  context.putImageData(timelineImage, 0, 0);
}

/** Sets `topBytes`: room for reserved memory in the zoom, and for failed requests. @param {number} height */
function scaleTimeline(height) {
  const { reserved, allocated, pending } = device.totals;
  const over = view.only && view.mode !== "segment" ? foundOverTime() : null;
  if (over) {
    topBytes = (shownMoments.reduce((most, m) => Math.max(most, over.bytes[m]), 0) || 1) * 1.08;
    return;
  }
  let top = 0;
  for (const m of shownMoments) top = Math.max(top, reserved[m], allocated[m] + pending[m] + device.data.undrawnAt(m));
  for (const failure of device.data.header.failures) {
    if (failure.moment < view.start || failure.moment >= view.end) continue;
    top = Math.max(top, Math.min(top * 1.5, allocated[failure.moment] + failure.requested_bytes));
  }
  // A device that is much larger is named at the edge.
  if (device.capacity <= top * MAX_CAPACITY_RATIO) top = Math.max(top, device.capacity);
  topBytes = (top || 1) * (1 + 26 / Math.max(60, height));
}

/** The background of reserved memory. @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale */
function paintReserved(out, width, height, scale) {
  out.fill(pixels.back);
  for (let x = 0; x < width; x += 1) {
    const from = height - Math.floor(device.totals.reserved[shownMoments[x]] * scale);
    for (let y = Math.max(0, from), at = y * width + x; y < height; y += 1, at += width) out[at] = pixels.free;
  }
}

/** Hatches memory that is left out of the data, above the rest. @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale */
function paintUndrawn(out, width, height, scale) {
  if (!device.data.undrawn) return;
  const { allocated, pending } = device.totals;
  for (let x = 0; x < width; x += 1) {
    const m = shownMoments[x];
    const from = Math.floor((allocated[m] + pending[m]) * scale);
    const to = Math.min(height, Math.floor((allocated[m] + pending[m] + device.data.undrawnAt(m)) * scale));
    for (let y = from; y < to; y += 1) out[(height - 1 - y) * width + x] = (x + y) % 4 ? pixels.line : pixels.muted;
  }
}

/** @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale */
function paintReservedLine(out, width, height, scale) {
  let before = -1;
  for (let x = 0; x < width; x += 1) {
    const y = Math.max(0, height - 1 - Math.floor(device.totals.reserved[shownMoments[x]] * scale));
    const [from, to] = before < 0 ? [y, y] : [Math.min(y, before), Math.max(y, before)];
    for (let at = from; at <= Math.min(height - 1, to + 1); at += 1) out[at * width + x] = pixels.muted;
    before = y;
  }
}

/** Paints every allocation, in as many columns as one frame has time for. The others follow when idle. @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale */
function sweepEach(out, width, height, scale) {
  const start = performance.now();
  const { sweep } = /** @type {StackedRows} */ (stackedRows());
  const live = sweep.keyframes[Math.floor(shownMoments[width >> 1] / KEYFRAME_INTERVAL)].length;
  let every = 1;
  while (!isFine && every < 32 && (width / every) * live * msPerRow > FRAME) every *= 2;
  const paint = paintEach(out, width, height, scale);
  for (let x = 0; x < width; x += 1) {
    const skipped = x % every !== 0;
    if (skipped) shownMoments[x] = shownMoments[x - 1];
    if (skipped || (x && shownMoments[x] === shownMoments[x - 1])) repeatColumn(out, width, height, x);
    else paint(shownMoments[x], x);
  }
  if (live > 500) msPerRow = Math.min(2e-5, Math.max(5e-7, (performance.now() - start) / ((width / every) * live)));
  clearTimeout(refineTimer);
  isFine = false;
  if (every > 1) {
    refineTimer = setTimeout(() => {
      isFine = true;
      redraw("timeline");
    }, 180);
  }
}

/** The allocation or group under a point. @param {number} x 0 to 1 @param {number} y 0 to 1, from the top @returns {{m: number, row: number, group: number, bytes: number}} `row` and `group` are -1 if there is none */
function hitTimeline(x, y) {
  const column = Math.max(0, Math.min(shownMoments.length - 1, Math.floor(x * shownMoments.length)));
  const m = shownMoments[column] ?? 0;
  const wanted = (1 - y) * topBytes;
  let bytes = 0;
  const stacked = stackedRows();
  if (stacked) {
    const only = view.mode === "each" ? onlyRows() : null;
    for (const row of stacked.sweep.live(m)) {
      if (only && !only[row]) continue;
      bytes += stacked.rows.bytes[row];
      if (bytes >= wanted) return { m, row, group: -1, bytes: stacked.rows.bytes[row] };
    }
    return { m, row: -1, group: -1, bytes: 0 };
  }
  let hit = { m, row: -1, group: -1, bytes: 0 };
  sweepBands(Uint32Array.of(m), (sums) => {
    const step = view.only ? 2 : 1;
    for (let band = 0; band < sums.length && hit.group < 0; band += step) {
      bytes += sums[band];
      if (bytes < wanted || !sums[band]) continue;
      const group = band >> 1;
      const whole = sums[group * 2] + (view.only ? 0 : sums[group * 2 + 1]);
      hit = { m, row: -1, group, bytes: group < groups.names.length ? whole : sums[band] };
    }
  });
  return hit;
}

/** @param {number} group */
export function groupName(group) {
  return groups.names[group] ?? "freed, waiting for another stream";
}

export function wireTimeline() {
  const canvas = byId("timeline");
  /** @type {{x: number, from: number, to: number, pans: boolean, moved: boolean} | null} */
  let drag = null;
  canvas.addEventListener(
    "wheel",
    (/** @type {WheelEvent} */ event) => {
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      // The wheel alone scrolls the page.
      if (!isSideways && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const [x] = pointIn(event, canvas);
      if (isSideways) panBy((event.deltaX || event.deltaY) / canvas.clientWidth);
      else zoomBy(Math.exp(event.deltaY * 0.0018), x);
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    const pans = event.shiftKey || event.pointerType === "touch";
    drag = { x: pointIn(event, canvas)[0], from: view.start, to: view.end, pans, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const [x, y] = pointIn(event, canvas);
    if (!drag) {
      showTooltip(event, tooltipText(x, y));
      return;
    }
    drag.moved ||= Math.abs(x - drag.x) * canvas.clientWidth > 3;
    if (drag.moved && drag.pans) {
      [view.start, view.end] = [drag.from, drag.to];
      panBy(drag.x - x);
    } else if (drag.moved) {
      draggedRange = [Math.max(0, Math.min(drag.x, x)), Math.min(1, Math.max(drag.x, x))];
      redraw("overlay");
    }
  });
  canvas.addEventListener("pointerup", (/** @type {PointerEvent} */ event) => {
    if (draggedRange) setZoom(momentOfX(draggedRange[0]), momentOfX(draggedRange[1]));
    draggedRange = null;
    if (drag && !drag.moved) {
      const hit = hitTimeline(...pointIn(event, canvas));
      setMoment(hit.m);
      if (hit.row >= 0 && view.mode === "segment") selectSegment(hit.row);
      else if (hit.row >= 0) select(hit.row);
    }
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => showTooltip(null, ""));
}

/** @param {number} x @param {number} y */
function tooltipText(x, y) {
  const { m, row, group, bytes } = hitTimeline(x, y);
  const { allocated, reserved } = device.totals;
  const time = device.data.hasTime ? `, ${secondsText(device.data.time[m])}` : "";
  const sums = `${bytesText(allocated[m])} allocated of ${bytesText(reserved[m])} reserved`;
  const lines = [`${device.momentText(m)}${time}: ${sums}`, ...marksNear(x, 5 / byId("timeline").clientWidth)];
  if (row >= 0) lines.push(view.mode === "segment" ? segmentLifeText(row) : allocationText(row, 8));
  else if (group >= 0) lines.push(`${groupName(group)}: ${bytesText(bytes)}`);
  return lines.join("\n");
}

/** Zooms around a position. @param {number} factor @param {number} x 0 to 1 */
export function zoomBy(factor, x) {
  const at = x * (1 - factor);
  const [a, b] = [momentOfX(Math.max(-1, at)), momentOfX(at + factor)];
  if (view.axis === "entry" || factor < 1) setZoom(a, b);
  else zoomTime(at, at + factor);
}

/** Moves the zoom by a share of its width. @param {number} share */
export function panBy(share) {
  if (view.axis === "entry")
    setZoom(view.start + (view.end - view.start) * share, view.end + (view.end - view.start) * share);
  else zoomTime(share, 1 + share);
}

/** Zooms on the time axis; `from` and `to` count widths of the zoom. Stays within the trace. @param {number} from @param {number} to */
function zoomTime(from, to) {
  const { data } = device;
  const start = data.timeAt(view.start);
  const width = data.timeAt(view.end) - start;
  const all = data.timeAt(data.entries + 1);
  const wanted = Math.min(all, width * (to - from));
  const at = Math.max(0, Math.min(all - wanted, start + width * from));
  setZoom(data.momentAt(at), data.momentAt(at + wanted));
}

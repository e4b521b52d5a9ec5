// The overview: the whole trace in a strip, with a brush for the zoom.

import { byId, fitCanvas, pointIn } from "./dom.js";
import { foundOverTime } from "./found.js";
import { fillFaint } from "./overlay.js";
import { momentOfX, xOfMoment } from "./raster.js";
import { theme } from "./theme.js";
import { panBy } from "./timeline.js";
import { device, highlighted, setZoom, view } from "./view.js";

/** @type {HTMLCanvasElement | null} */
let overviewPicture = null;
/** @type {string} */
let overviewKey = "";
/** What the picture highlights. @type {Uint8Array | null} */
let overviewOf = null;

export function drawOverview() {
  const canvas = byId("overview");
  const [width, height, ratio] = fitCanvas(canvas);
  if (!width || !height) return;
  const key = `${view.page} ${view.axis} ${width} ${height} ${theme.back}`;
  if (overviewKey !== key || overviewOf !== highlighted) {
    overviewPicture = renderOverview(width, height);
    overviewKey = key;
    overviewOf = highlighted;
  }
  const context = canvas.getContext("2d");
  context.drawImage(/** @type {HTMLCanvasElement} */ (overviewPicture), 0, 0);
  const [from, to] = brushRange().map((share) => share * width);
  context.fillStyle = theme.back;
  fillFaint(context, 0.72, 0, 0, from, height);
  fillFaint(context, 0.72, to, 0, width - to, height);
  context.strokeStyle = theme.fore;
  context.lineWidth = ratio;
  context.strokeRect(from + ratio / 2, ratio / 2, Math.max(3, to - from - ratio), height - ratio);
  context.fillStyle = theme.bad;
  for (const failure of device.data.header.failures)
    context.fillRect(overviewXOfMoment(failure.moment) * width - ratio, 0, 2 * ratio, height);
}

/** Position of a moment in the overview, 0 to 1. @param {number} x */
const overviewXOfMoment = (x) => xOfMoment(x, 0, device.data.entries + 1);
/** @param {number} share */
const momentOfOverviewX = (share) => momentOfX(share, 0, device.data.entries + 1);

/** What a drag from a position moves: an end of the zoom, all of it, or a new one. @param {number} x @param {number} from @param {number} to @param {number} near */
function gripAt(x, from, to, near) {
  if (to - from > 0.999) return "new";
  if (Math.abs(x - from) < near) return "from";
  if (Math.abs(x - to) < near) return "to";
  return x > from && x < to ? "move" : "new";
}

/** The zoom in the overview, 0 to 1. @returns {[number, number]} */
function brushRange() {
  return [overviewXOfMoment(view.start), overviewXOfMoment(view.end)];
}

/** Draws allocated and reserved memory of the whole trace, and what is highlighted of it. @param {number} width @param {number} height */
function renderOverview(width, height) {
  const picture = document.createElement("canvas");
  picture.width = width;
  picture.height = height;
  const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
  const { entries } = device.data;
  const over = foundOverTime();
  const { allocated, reserved, mostReserved, peaks } = device.totals;
  const scale = (height * 0.95) / (Math.max(mostReserved, allocated[device.totals.peak]) || 1);
  context.fillStyle = theme.back;
  context.fillRect(0, 0, width, height);
  for (let x = 0; x < width; x += 1) {
    const from = Math.min(entries, Math.floor(momentOfOverviewX(x / width)));
    const to = Math.max(from + 1, Math.min(entries + 1, Math.ceil(momentOfOverviewX((x + 1) / width))));
    const m = peaks.argmax(from, to);
    context.fillStyle = theme.free;
    context.fillRect(x, height - reserved[m] * scale, 1, height);
    context.fillStyle = over ? theme.muted : theme.accent;
    context.fillRect(x, height - allocated[m] * scale, 1, height);
    context.fillStyle = theme.accent;
    if (over) context.fillRect(x, height - over.bytes[m] * scale, 1, height);
  }
  return picture;
}

export function wireOverview() {
  const canvas = byId("overview");
  /** @type {{kind: "new" | "move" | "from" | "to", at: number, from: number, to: number} | null} */
  let drag = null;
  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    const [x] = pointIn(event, canvas);
    const [from, to] = brushRange();
    drag = { kind: gripAt(x, from, to, 6 / canvas.clientWidth), at: x, from, to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (!drag) return;
    const [x] = pointIn(event, canvas);
    if (drag.kind === "move") {
      const by = Math.max(-drag.from, Math.min(1 - drag.to, x - drag.at));
      setZoom(momentOfOverviewX(drag.from + by), momentOfOverviewX(drag.to + by));
      return;
    }
    const fixed = drag.kind === "from" ? drag.to : drag.kind === "to" ? drag.from : drag.at;
    const [low, high] = [Math.max(0, Math.min(fixed, x)), Math.min(1, Math.max(fixed, x))];
    if (high - low > 3 / canvas.clientWidth) setZoom(momentOfOverviewX(low), momentOfOverviewX(high));
  });
  canvas.addEventListener("pointerup", (/** @type {PointerEvent} */ event) => {
    const [x] = pointIn(event, canvas);
    if (drag && drag.kind === "new" && Math.abs(x - drag.at) * canvas.clientWidth < 3) {
      const width = drag.to - drag.from;
      setZoom(momentOfOverviewX(Math.max(0, x - width / 2)), momentOfOverviewX(Math.min(1, x + width / 2)));
    }
    drag = null;
  });
  canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    panBy(event.key === "ArrowLeft" ? -0.2 : 0.2);
    event.preventDefault();
    event.stopPropagation();
  });
}

// The address map: each pool and stream is a tape of segments, wrapped like text. On top, to the same scale, are the
// failed request and the largest free block that could have served it.

import { PENDING, RELEASABLE, STRANDED, pixels, rowPixels, texture } from "./colours.js";
import { byId, fitCanvas } from "./dom.js";
import { bytesText, countOf, countText } from "./format.js";
import { allocationText, wireTooltip } from "./selection.js";
import { mix, pixelOf, theme } from "./theme.js";
import { device, moment, select, selectSegment, view } from "./view.js";
/** @import { Columns } from "./columns.js" */
/** @import { Hole, Segment } from "./space.js" */

const MAP_ROW = 17;
const ROW_GAP = 3;
const TAPE_TITLE_HEIGHT = 18;
/** Maximum number of tapes. Further pools and streams share the last one. */
const MAX_TAPES = 8;

/**
 * @typedef {object} Tape
 * @property {string} title
 * @property {Segment[]} segments laid end to end
 * @property {number} units
 * @property {number} row its first row
 * @property {number} rows
 * @property {string | undefined} plain the single colour of a tape without segments
 */

/** @type {{tapes: Tape[], perPixel: number, width: number, ratio: number}} */
export let mapLayout = { tapes: [], perPixel: 1, width: 0, ratio: 1 };

/** The name of a pool and stream. @param {number} pool @param {number} stream */
export function poolStreamText(pool, stream) {
  return `${poolName(device.data, pool)}, stream ${device.data.header.streams[stream]}`;
}

/** @param {Columns} data @param {number} pool */
export function poolName({ header: { pools } }, pool) {
  return pools[pool] === "0:0" ? "default pool" : `private pool ${pools[pool]}`;
}

/** @param {Segment[]} segments @param {"size" | "live" | "pending" | "releasable" | "stranded"} field @returns {number} bytes */
export function sumOf(segments, field) {
  return segments.reduce((sum, segment) => sum + segment[field], 0) * device.data.header.unit;
}

/** Segments by pool, stream and size class. @returns {{title: string, segments: Segment[]}[]} */
export function buildTapes() {
  /** @type {Map<string, {title: string, segments: Segment[]}>} */
  const tapes = new Map();
  for (const segment of moment.segments) {
    const key = `${segment.pool} ${segment.stream} ${segment.small ? 1 : 0}`;
    let tape = tapes.get(key);
    if (!tape) {
      const kind = segment.small ? "requests up to 1 MiB" : "larger requests";
      tapes.set(key, (tape = { title: `${poolStreamText(segment.pool, segment.stream)}, ${kind}`, segments: [] }));
    }
    tape.segments.push(segment);
  }
  const order = [...tapes.values()].sort((a, b) => sumOf(b.segments, "size") - sumOf(a.segments, "size"));
  if (order.length <= MAX_TAPES) return order;
  const rest = order.splice(MAX_TAPES - 1);
  const segments = rest.flatMap((tape) => tape.segments);
  return [...order, { title: `${countText(rest.length)} smaller places`, segments }];
}

/** The last failure at or before the moment, else the first. @returns {any} */
function failureShown() {
  const { failures } = device.data.header;
  return failures.findLast((/** @type {any} */ failure) => failure.moment <= moment.m) ?? failures[0] ?? null;
}

/** The largest free block that a request could be given now, in units. @param {any} failure */
function largestFor(failure) {
  const { pool, stream, requested_bytes: bytes } = failure;
  const isUsable = (/** @type {Segment} */ segment) =>
    (pool === null || segment.pool === pool) && segment.stream === stream && segment.small === bytes <= 1048576;
  return moment.segments.filter(isUsable).reduce((most, segment) => Math.max(most, segment.largest), 0);
}

/** @returns {Tape[]} */
function layTapes() {
  const { unit } = device.data.header;
  /** @param {string} title @param {number} units @param {Segment[]} segments @param {string} [plain] */
  const tapeOf = (title, units, segments, plain) => ({ title, units, segments, plain, row: 0, rows: 0 });
  const tapes = buildTapes().map(({ title, segments }) => {
    const units = sumOf(segments, "size") / unit;
    return tapeOf(`${title}: ${bytesText(units * unit)} in ${countOf(segments.length, "segment")}`, units, segments);
  });
  const failure = failureShown();
  if (!failure) return tapes;
  const hole = largestFor(failure);
  const { pool, stream, requested_bytes: bytes } = failure;
  const at = failure.moment === moment.m ? "" : ` (at entry ${device.entryText(failure.moment)})`;
  const place = pool === null ? `stream ${device.data.header.streams[stream]}` : poolStreamText(pool, stream);
  const [wanted, largest] = [bytesText(bytes), bytesText(hole * unit)];
  return [
    tapeOf(`the request that failed${at}: ${wanted}, to scale`, bytes / unit, [], theme.bad),
    tapeOf(`the largest free block for it now, in the ${place}: ${largest}`, hole, [], theme.stripe),
    ...tapes,
  ];
}

/** Sets the rows of the tapes so that they fit into `rows` rows. @param {Tape[]} tapes @param {number} width pixels @param {number} rows @returns {number} units a pixel */
function fitTapes(tapes, width, rows) {
  const units = tapes.reduce((sum, tape) => sum + tape.units, 0);
  let perPixel = Math.max(4096 / device.data.header.unit, units / (width * Math.max(1, rows)));
  for (let tries = 0; tries < 200; tries += 1) {
    const needed = tapes.reduce((sum, tape) => sum + Math.max(1, Math.ceil(tape.units / perPixel / width)), 0);
    if (needed <= Math.max(rows, tapes.length)) break;
    perPixel *= 1.03;
  }
  let row = 0;
  for (const tape of tapes) {
    tape.row = row;
    tape.rows = Math.max(1, Math.ceil(tape.units / perPixel / width - 1e-9));
    row += tape.rows;
  }
  return perPixel;
}

/** Where a row of a tape begins, in CSS pixels. @param {number} tape @param {number} row */
function rowTop(tape, row) {
  return (tape + 1) * TAPE_TITLE_HEIGHT + row * (MAP_ROW + ROW_GAP);
}

/** Height of the map where the tapes leave it a choice: it ends in the first screen if it is the first view. */
function mapRoom() {
  return Math.max(240, Math.min(450, innerHeight * 0.42));
}

export function drawMap() {
  const canvas = byId("map");
  const tapes = layTapes();
  const shell = canvas.parentElement;
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.round(canvas.clientWidth * ratio);
  if (!width) return;
  const rows = Math.max(tapes.length, Math.floor((mapRoom() - tapes.length * TAPE_TITLE_HEIGHT) / (MAP_ROW + ROW_GAP)));
  const perPixel = fitTapes(tapes, width, rows);
  mapLayout = { tapes, perPixel, width, ratio };
  const allRows = tapes.reduce((sum, tape) => sum + tape.rows, 0);
  shell.style.height = `${rowTop(tapes.length - 1, allRows) + 2}px`;
  const [, height] = fitCanvas(canvas);
  const context = canvas.getContext("2d", { alpha: false });
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = theme.back;
  context.fillRect(0, 0, width, height);
  tapes.forEach((tape, at) => drawTape(context, tape, at, paintTape(tape, perPixel, width)));
  byId("map-note").textContent = mapNote();
}

function mapNote() {
  const { segments } = moment;
  const largest = segments.reduce((most, segment) => Math.max(most, segment.largest), 0);
  const sum = (/** @type {"size" | "pending" | "releasable" | "stranded"} */ field) =>
    bytesText(sumOf(segments, field));
  const waiting = sumOf(segments, "pending") ? `, ${sum("pending")} waiting` : "";
  const free = `${sum("stranded")} stranded beside live blocks, ${sum("releasable")} releasable${waiting}`;
  const most = bytesText(largest * device.data.header.unit);
  return `${countOf(segments.length, "segment")}, ${sum("size")}; free: ${free}; largest free block ${most}`;
}

/** The pixels of a tape, unwrapped. @param {Tape} tape @param {number} perPixel @param {number} width @returns {Uint32Array} */
function paintTape(tape, perPixel, width) {
  const out = new Uint32Array(tape.rows * width).fill(pixels.back);
  /** @param {number} from @param {number} to @param {number} pixel @param {boolean} [edge] */
  const strip = (from, to, pixel, edge) => {
    const start = Math.round(from / perPixel);
    const end = Math.max(start + 1, Math.round(to / perPixel));
    out.fill(pixel, start, end);
    if (edge && pixel !== PENDING && end - start > 3) out[start] = mix(pixel, pixels.back, 0.55);
  };
  if (tape.plain) {
    if (tape.units) strip(0, tape.units, tape.plain === theme.stripe ? STRANDED : pixelOf(tape.plain));
    return out;
  }
  const { data } = device;
  let base = 0;
  for (const segment of tape.segments) {
    const shift = base - segment.addr;
    for (const hole of segment.holes) {
      strip(hole.addr + shift, hole.addr + hole.size + shift, STRANDED);
      if (hole.to > hole.from) strip(hole.from + shift, hole.to + shift, RELEASABLE);
    }
    for (const row of segment.rows) {
      const from = data.addr[row] + shift;
      const waits = data.freedAt[row] <= moment.m;
      const pixel = row === view.selected ? pixels.accent : waits ? PENDING : rowPixels[row];
      strip(from, from + data.bytes[row] / data.header.unit, pixel, true);
    }
    base += segment.size;
    // A dark stroke ends a segment, if there is room.
    if (segment.size / perPixel > 5) out[Math.min(out.length - 1, Math.round(base / perPixel) - 1)] = pixels.fore;
  }
  return out;
}

/** @param {CanvasRenderingContext2D} context @param {Tape} tape @param {number} at @param {Uint32Array} line */
function drawTape(context, tape, at, line) {
  const { width, ratio, perPixel } = mapLayout;
  const tall = Math.round(MAP_ROW * ratio);
  const middle = tall / 2 - 0.5;
  context.fillStyle = theme.fore;
  context.font = `${12 * ratio}px system-ui, sans-serif`;
  context.fillText(tape.title, 0, (rowTop(at, tape.row) - 5) * ratio);
  for (let row = 0; row < tape.rows; row += 1) {
    const pixelsLeft = Math.round(tape.units / perPixel) - row * width;
    const wide = Math.max(1, Math.min(width, pixelsLeft));
    const image = context.createImageData(wide, tall);
    const out = new Uint32Array(image.data.buffer);
    for (let y = 0; y < tall; y += 1) {
      // Free memory is half as high as blocks, the more so to be recognized without colour.
      const isEdge = !tape.plain && Math.abs(y - middle) >= tall / 4;
      const isRim = Math.abs(Math.abs(y - middle) - tall / 4 + 1) <= 1;
      for (let x = 0; x < wide; x += 1) {
        const pixel = line[row * width + x];
        out[y * wide + x] = pixel > PENDING ? pixel : texture(pixel, x, y, isEdge, isRim);
      }
    }
    if (tape.units) context.putImageData(image, 0, Math.round(rowTop(at, tape.row + row) * ratio));
  }
}

/** The segment and the allocation or hole under the pointer. @param {any} event @returns {{segment: Segment, row: number, hole: Hole | null} | null} */
function hitMap(event) {
  const box = byId("map").getBoundingClientRect();
  const { tapes, perPixel, width, ratio } = mapLayout;
  const [x, y] = [(event.clientX - box.left) * ratio, event.clientY - box.top];
  const at = tapes.findIndex((tape, index) => y >= rowTop(index, tape.row) && y < rowTop(index, tape.row + tape.rows));
  if (at < 0 || tapes[at].plain) return null;
  const tape = tapes[at];
  const row = Math.floor((y - rowTop(at, tape.row)) / (MAP_ROW + ROW_GAP));
  let units = (row * width + x) * perPixel;
  for (const segment of tape.segments) {
    if (units >= segment.size) {
      units -= segment.size;
      continue;
    }
    const addr = segment.addr + units;
    const { data } = device;
    const isIn = (/** @type {number} */ start, /** @type {number} */ size) => addr >= start && addr < start + size;
    const row = segment.rows.find((one) => isIn(data.addr[one], data.bytes[one] / data.header.unit)) ?? -1;
    return { segment, row, hole: segment.holes.find((hole) => isIn(hole.addr, hole.size)) ?? null };
  }
  return null;
}

/** @param {Segment} segment */
export function segmentText(segment) {
  const text = (/** @type {number} */ units) => bytesText(units * device.data.header.unit);
  const kind = segment.expandable ? "expandable segment" : "segment";
  const place = `${device.data.address(segment.addr)}, ${poolStreamText(segment.pool, segment.stream)}`;
  const free = text(segment.releasable + segment.stranded);
  return `${kind} of ${text(segment.size)} at ${place}: ${text(segment.live)} allocated, ${free} free`;
}

/** @param {any} event */
function mapTooltip(event) {
  const hit = hitMap(event);
  if (!hit || (hit.row < 0 && !hit.hole)) return "";
  const { unit } = device.data.header;
  const { size, from, to } = hit.hole ?? { size: 0, from: 0, to: 0 };
  const free = `free: ${bytesText(size * unit)}${to > from ? `, ${bytesText((to - from) * unit)} of it releasable` : ""}`;
  return `${hit.row >= 0 ? allocationText(hit.row, 6) : free}\nin a ${segmentText(hit.segment)}`;
}

export function wireMap() {
  const canvas = byId("map");
  wireTooltip(canvas, mapTooltip);
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const hit = hitMap(event);
    if (hit && hit.row >= 0) select(hit.row);
    else if (hit) selectSegment(hit.segment.range);
  });
}

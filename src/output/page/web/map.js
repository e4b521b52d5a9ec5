// Device memory by address: each pool and stream is a tape of segments, wrapped like text. The failed request and the largest
// hole that could have served it lie on top, to the same scale.

const ROW = 17;
const ROW_GAP = 3;
const HEAD = 18;
/** Tapes of pools and streams of their own; the others share the last. */
const MOST_TAPES = 8;

/**
 * @typedef {object} Tape
 * @property {string} title
 * @property {Segment[]} segments laid end to end
 * @property {number} units
 * @property {number} row the first row of pixels
 * @property {number} rows
 * @property {string} [plain] one colour for all of it
 */

/** @type {{tapes: Tape[], perPixel: number, width: number, ratio: number}} */
let mapLayout = { tapes: [], perPixel: 1, width: 0, ratio: 1 };

/** The name of a pool and stream. @param {number} pool @param {number} stream */
function placeText(pool, stream) {
  const { pools, streams } = device.data.header;
  return `${pools[pool] === "0:0" ? "default pool" : `private pool ${pools[pool]}`}, stream ${streams[stream]}`;
}

/** @param {Segment[]} segments @param {"size" | "live" | "pending" | "releasable" | "stranded"} what @returns {number} bytes */
function sumOf(segments, what) {
  return segments.reduce((sum, segment) => sum + segment[what], 0) * device.data.header.unit;
}

/** Segments by pool, stream and size class. @returns {{title: string, segments: Segment[]}[]} */
function tapesOf() {
  /** @type {Map<string, {title: string, segments: Segment[]}>} */
  const tapes = new Map();
  for (const segment of moment.segments) {
    const key = `${segment.pool} ${segment.stream} ${segment.small ? 1 : 0}`;
    let tape = tapes.get(key);
    if (!tape) {
      const kind = segment.small ? "requests up to 1 MiB" : "larger requests";
      tapes.set(key, (tape = { title: `${placeText(segment.pool, segment.stream)}, ${kind}`, segments: [] }));
    }
    tape.segments.push(segment);
  }
  const order = [...tapes.values()].sort((a, b) => sumOf(b.segments, "size") - sumOf(a.segments, "size"));
  if (order.length <= MOST_TAPES) return order;
  const rest = order.splice(MOST_TAPES - 1);
  return [
    ...order,
    { title: `${countText(rest.length)} smaller places`, segments: rest.flatMap((tape) => tape.segments) },
  ];
}

/** The failure that is shown: the last one at or before the moment, else the first. @returns {any} */
function failureShown() {
  const { failures } = device.data.header;
  return failures.findLast((/** @type {any} */ failure) => failure.moment <= moment.m) ?? failures[0] ?? null;
}

/** The largest free block that a request could be given now, in units. @param {any} failure */
function largestFor(failure) {
  const small = failure.requested_bytes <= 1048576;
  let largest = 0;
  for (const segment of moment.segments) {
    if (
      (failure.pool === null || segment.pool === failure.pool) &&
      segment.stream === failure.stream &&
      segment.small === small
    )
      largest = Math.max(largest, segment.largest);
  }
  return largest;
}

/** @returns {Tape[]} */
function layTapes() {
  const { unit } = device.data.header;
  const tapes = tapesOf().map(({ title, segments }) => {
    const units = segments.reduce((sum, segment) => sum + segment.size, 0);
    return {
      title: `${title}: ${bytesText(units * unit)} in ${countOf(segments.length, "segment")}`,
      segments,
      units,
      row: 0,
      rows: 0,
    };
  });
  const failure = failureShown();
  if (!failure) return tapes;
  const hole = largestFor(failure);
  const at = failure.moment === moment.m ? "" : ` (at entry ${countText(device.entryOf(failure.moment) ?? 0)})`;
  const wanted = failure.requested_bytes / unit;
  const place =
    failure.pool === null
      ? `stream ${device.data.header.streams[failure.stream]}`
      : placeText(failure.pool, failure.stream);
  return [
    {
      title: `the request that failed${at}: ${bytesText(failure.requested_bytes)}, to scale`,
      segments: [],
      units: wanted,
      row: 0,
      rows: 0,
      plain: theme.bad,
    },
    {
      title: `the largest free block for it now, in the ${place}: ${bytesText(hole * unit)}`,
      segments: [],
      units: hole,
      row: 0,
      rows: 0,
      plain: theme.stranded,
    },
    ...tapes,
  ];
}

/** Chooses the scale at which all tapes fit into the height, and their rows. @param {Tape[]} tapes @param {number} width pixels @param {number} rows @returns {number} units a pixel */
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
  return (tape + 1) * HEAD + row * (ROW + ROW_GAP);
}

function drawMap() {
  const canvas = byId("map");
  const tapes = layTapes();
  const shell = canvas.parentElement;
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.round(canvas.clientWidth * ratio);
  if (!width) return;
  const rows = Math.max(
    tapes.length,
    Math.floor((Math.max(300, 470 - tapes.length * 4) - tapes.length * HEAD) / (ROW + ROW_GAP)),
  );
  const perPixel = fitTapes(tapes, width, rows);
  mapLayout = { tapes, perPixel, width, ratio };
  shell.style.height = `${
    rowTop(
      tapes.length - 1,
      tapes.reduce((sum, tape) => sum + tape.rows, 0),
    ) + 2
  }px`;
  const [, height] = fitCanvas(canvas);
  const context = canvas.getContext("2d", { alpha: false });
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = theme.back;
  context.fillRect(0, 0, width, height);
  tapes.forEach((tape, at) => drawTape(context, tape, at, paintTape(tape, perPixel, width)));
  byId("map-note").textContent = mapNote();
}

function mapNote() {
  const unit = device.data.header.unit;
  const largest = moment.segments.reduce((most, segment) => Math.max(most, segment.largest), 0);
  const waiting = sumOf(moment.segments, "pending");
  return (
    `${countOf(moment.segments.length, "segment")}, ${bytesText(sumOf(moment.segments, "size"))}; free: ${bytesText(sumOf(moment.segments, "stranded"))} stranded beside live blocks, ` +
    `${bytesText(sumOf(moment.segments, "releasable"))} releasable${waiting ? `, ${bytesText(waiting)} waiting` : ""}; largest free block ${bytesText(largest * unit)}`
  );
}

/** The pixels of a tape, unwrapped. @param {Tape} tape @param {number} perPixel @param {number} width @returns {Uint32Array} */
function paintTape(tape, perPixel, width) {
  const out = new Uint32Array(tape.rows * width).fill(pixels.back);
  /** @param {number} from @param {number} to @param {number} pixel @param {boolean} [edge] */
  const strip = (from, to, pixel, edge) => {
    const start = Math.round(from / perPixel);
    const end = Math.max(start + 1, Math.round(to / perPixel));
    out.fill(pixel, start, end);
    if (edge && end - start > 3) out[start] = mix(pixel, pixels.back, 0.55);
  };
  if (tape.plain) {
    if (tape.units) strip(0, tape.units, pixelOf(tape.plain));
    return out;
  }
  const { data } = device;
  let base = 0;
  for (const segment of tape.segments) {
    const shift = base - segment.addr;
    for (const hole of segment.holes) {
      strip(hole.addr + shift, hole.addr + hole.size + shift, pixels.stranded);
      if (hole.to > hole.from) strip(hole.from + shift, hole.to + shift, pixels.releasable);
    }
    for (const row of segment.rows) {
      const from = data.addr[row] + shift;
      const waits = data.req[row] <= moment.m;
      const pixel = row === view.sel ? pixels.accent : waits ? pixels.pending : rowPixels[row];
      strip(from, from + data.bytes[row] / data.header.unit, pixel, true);
    }
    base += segment.size;
    // A segment's end is a dark stroke, where there is room for one.
    if (segment.size / perPixel > 5) out[Math.min(out.length - 1, Math.round(base / perPixel) - 1)] = pixels.fore;
  }
  return out;
}

/** @param {CanvasRenderingContext2D} context @param {Tape} tape @param {number} at @param {Uint32Array} line */
function drawTape(context, tape, at, line) {
  const { width, ratio, perPixel } = mapLayout;
  const tall = Math.round(ROW * ratio);
  const isFree = (/** @type {number} */ pixel) => pixel === pixels.stranded || pixel === pixels.releasable;
  // Free memory is a strip half as high as blocks: told apart without its colour.
  const edge = tape.plain ? line : line.map((pixel) => (isFree(pixel) ? pixels.free : pixel));
  context.fillStyle = theme.fore;
  context.font = `${12 * ratio}px system-ui, sans-serif`;
  context.fillText(tape.title, 0, (rowTop(at, tape.row) - 5) * ratio);
  for (let row = 0; row < tape.rows; row += 1) {
    const pixelsLeft = Math.round(tape.units / perPixel) - row * width;
    const wide = Math.max(1, Math.min(width, pixelsLeft));
    const image = context.createImageData(wide, tall);
    const out = new Uint32Array(image.data.buffer);
    for (let y = 0; y < tall; y += 1) {
      const source = Math.abs(y - tall / 2 + 0.5) < tall / 4 ? line : edge;
      out.set(source.subarray(row * width, row * width + wide), y * wide);
    }
    if (tape.units) context.putImageData(image, 0, Math.round(rowTop(at, tape.row + row) * ratio));
  }
}

/** The segment, and the allocation or the hole, under a point. @param {any} event @returns {{segment: Segment, row: number, hole: Hole | null} | null} */
function atMap(event) {
  const box = byId("map").getBoundingClientRect();
  const { tapes, perPixel, width, ratio } = mapLayout;
  const [x, y] = [(event.clientX - box.left) * ratio, event.clientY - box.top];
  const at = tapes.findIndex((tape, index) => y >= rowTop(index, tape.row) && y < rowTop(index, tape.row + tape.rows));
  if (at < 0 || tapes[at].plain) return null;
  const tape = tapes[at];
  const row = Math.floor((y - rowTop(at, tape.row)) / (ROW + ROW_GAP));
  let units = (row * width + x) * perPixel;
  for (const segment of tape.segments) {
    if (units >= segment.size) {
      units -= segment.size;
      continue;
    }
    const addr = segment.addr + units;
    const { data } = device;
    const hit = segment.rows.find(
      (one) => addr >= data.addr[one] && addr < data.addr[one] + data.bytes[one] / data.header.unit,
    );
    return {
      segment,
      row: hit ?? -1,
      hole: segment.holes.find((hole) => addr >= hole.addr && addr < hole.addr + hole.size) ?? null,
    };
  }
  return null;
}

/** @param {Segment} segment */
function segmentText(segment) {
  const { unit } = device.data.header;
  const kind = segment.expandable ? "expandable segment" : "segment";
  return (
    `${kind} of ${bytesText(segment.size * unit)} at ${device.data.address(segment.addr)}, ${placeText(segment.pool, segment.stream)}: ` +
    `${bytesText(segment.live * unit)} allocated, ${bytesText((segment.releasable + segment.stranded) * unit)} free`
  );
}

function wireMap() {
  const canvas = byId("map");
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const hit = atMap(event);
    const { unit } = device.data.header;
    if (!hit) showTip(null, "");
    else if (hit.row >= 0) showTip(event, `${allocationText(hit.row, 6)}\nin a ${segmentText(hit.segment)}`);
    else if (hit.hole)
      showTip(
        event,
        `free: ${bytesText(hit.hole.size * unit)}${hit.hole.to > hit.hole.from ? `, ${bytesText((hit.hole.to - hit.hole.from) * unit)} of it releasable` : ""}\nin a ${segmentText(hit.segment)}`,
      );
  });
  canvas.addEventListener("pointerleave", () => showTip(null, ""));
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const hit = atMap(event);
    if (hit && hit.row >= 0) select(hit.row);
  });
}

// The picture of memory over time, drawn by sweeping: each column of pixels shows the moment of its range at which most was
// allocated, with every allocation live then, so that no peak is lost whatever the zoom.

/** Where a moment is across the zoom, 0 to 1. @param {number} x */
function acrossZoom(x) {
  if (view.x === "entry") return (x - view.a) / (view.b - view.a);
  const from = device.data.timeAt(view.a);
  return (device.data.timeAt(x) - from) / (device.data.timeAt(view.b) - from || 1);
}

/** The inverse. @param {number} share */
function fromAcross(share) {
  if (view.x === "entry") return view.a + (view.b - view.a) * share;
  const from = device.data.timeAt(view.a);
  return device.data.momentAt(from + (device.data.timeAt(view.b) - from) * share);
}

/** The moment that each of `width` columns shows. @param {number} width */
function momentsAcross(width) {
  const { entries } = device.data;
  const moments = new Uint32Array(width);
  let from = Math.min(entries, Math.floor(fromAcross(0)));
  for (let at = 0; at < width; at += 1) {
    const end = fromAcross((at + 1) / width);
    const to = Math.max(from + 1, Math.min(entries + 1, Math.ceil(end)));
    moments[at] = to - from === 1 ? from : device.totals.peaks.argmax(from, to);
    from = Math.min(entries, Math.floor(end));
  }
  return moments;
}

/** Moments from one sum of the bands to the next. */
const BAND_KEYFRAME = 512;
/** Bytes by band at each of these, for what is grouped and lit now. @type {{of: any, lit: any, device: any, sums: Float64Array, now: Float64Array} | null} */
let bandKeyframes = null;

/** Bands from below: what is lit of a group, the rest of it; then what waits, and what is not drawn one by one. */
const bandCount = () => groups.names.length * 2 + 1;
/** @param {number} row */
const bandOf = (row) => groups.of[device.data.kind[row]] * 2 + (lit && !lit[row] ? 1 : 0);

/** @param {Float64Array} sums @param {number} m */
function stepBands(sums, m) {
  const { change, changeAt, bytes, req, start } = device.data;
  const waiting = groups.names.length * 2;
  for (let at = changeAt[m]; at < changeAt[m + 1]; at += 1) {
    const row = change[at] >>> 2;
    const what = change[at] & 3;
    if (what === BEGINS) {
      sums[req[row] === m ? waiting : bandOf(row)] += bytes[row];
    } else if (what === ENDS) {
      sums[waiting] -= bytes[row];
    } else if (start[row] !== m) {
      sums[bandOf(row)] -= bytes[row];
      sums[waiting] += bytes[row];
    }
  }
}

function bandsAtKeyframes() {
  if (bandKeyframes && bandKeyframes.of === groups && bandKeyframes.lit === lit && bandKeyframes.device === device)
    return bandKeyframes;
  const count = bandCount();
  const sums = new Float64Array(count * (Math.floor(device.data.entries / BAND_KEYFRAME) + 1));
  const now = new Float64Array(count);
  for (let m = 0; m <= device.data.entries; m += 1) {
    stepBands(now, m);
    if (m % BAND_KEYFRAME === 0) sums.set(now, (m / BAND_KEYFRAME) * count);
  }
  bandKeyframes = { of: groups, lit, device, sums, now };
  return bandKeyframes;
}

/** Calls back with the bytes of every band at each moment; fastest where the moments ascend. @param {Uint32Array} moments @param {(sums: Float64Array, at: number) => void} visit */
function sweepBands(moments, visit) {
  const { sums, now } = bandsAtKeyframes();
  const count = bandCount();
  let here = -1;
  for (let at = 0; at < moments.length; at += 1) {
    const m = moments[at];
    const nearest = Math.floor(m / BAND_KEYFRAME);
    if (here < 0 || m < here || nearest * BAND_KEYFRAME > here) {
      here = nearest * BAND_KEYFRAME;
      now.set(sums.subarray(nearest * count, (nearest + 1) * count));
    }
    while (here < m) stepBands(now, (here += 1));
    visit(now, at);
  }
}

/** Paints one column from the bottom, band by band. @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale pixels per byte */
function paintBands(out, width, height, scale) {
  const count = bandCount();
  const colours = new Uint32Array(count);
  for (let group = 0; group < groups.names.length; group += 1) {
    colours[group * 2] = groupPixels[group];
    colours[group * 2 + 1] = dimPixels[group];
  }
  colours[count - 1] = pixels.pending;
  /** @param {Float64Array} sums @param {number} x */
  return (sums, x) => {
    let bytes = 0;
    let y = 0;
    let at = (height - 1) * width + x;
    for (let band = 0; band < count; band += 1) {
      bytes += sums[band];
      const end = Math.min(height, Math.floor(bytes * scale));
      for (; y < end; y += 1, at -= width) out[at] = colours[band];
    }
  };
}

/** Paints one column allocation by allocation. @param {Uint32Array} out @param {number} width @param {number} height @param {number} scale */
function paintEach(out, width, height, scale) {
  const { sweep, data } = device;
  const { next, head, tail } = sweep;
  /** @param {number} m @param {number} x */
  return (m, x) => {
    sweep.seek(m);
    let bytes = 0;
    let y = 0;
    let at = (height - 1) * width + x;
    for (let row = next[head]; row !== tail; row = next[row]) {
      bytes += data.bytes[row];
      const end = Math.min(height, Math.floor(bytes * scale));
      if (end <= y) continue;
      const pixel = data.req[row] <= m ? pixels.pending : rowPixels[row];
      if (end - y > 3) {
        out[at] = mix(pixel, pixels.back, 0.45);
        at -= width;
        y += 1;
      }
      for (; y < end; y += 1, at -= width) out[at] = pixel;
    }
  };
}

/** A column the same as the one before it. @param {Uint32Array} out @param {number} width @param {number} height @param {number} x */
function repeatColumn(out, width, height, x) {
  for (let at = x, end = width * height; at < end; at += width) out[at] = out[at - 1];
}

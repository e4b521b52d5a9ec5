// The colour of each allocation in every picture.

import { LINE_COLOURS, MAX_LINES } from "./groups.js";
import { mix, pixelOf, theme } from "./theme.js";
import { device, highlighted, view } from "./view.js";
/** @import { Groups } from "./groups.js" */

/** The groups that have a colour each. @type {Groups} */
export let groups;
/** Colour of each allocation, as a pixel. */
export let rowPixels = new Uint32Array(0);
/** Colour of each group, and its dim variant for allocations that are not highlighted. @type {Uint32Array} */
export let groupPixels = new Uint32Array(0);
/** @type {Uint32Array} */
export let dimPixels = new Uint32Array(0);
/** @type {Record<string, number>} */
export let pixels = {};

/** In place of a pixel: memory without a colour of its own, which is striped or framed. No colour of a pixel is as small. */
export const STRANDED = 1;
export const RELEASABLE = 2;
export const PENDING = 3;

/** Memory that waits for another stream, in upright stripes. @param {number} x */
export function waitingPixel(x) {
  return x % 4 < 2 ? pixels.stripe : pixels.free;
}

// Free memory takes the middle half of a row: `isEdge` is above or below it, `isRim` at its border.
/** A pixel of memory without a colour of its own. @param {number} kind @param {number} x @param {number} y @param {boolean} isEdge @param {boolean} isRim */
export function texture(kind, x, y, isEdge, isRim) {
  if (kind === PENDING) return waitingPixel(x);
  if (isEdge) return pixels.free;
  if (kind === RELEASABLE) return isRim ? pixels.stripe : pixels.free;
  return (x + y) % 4 < 2 ? pixels.stripe : pixels.free;
}

/** Updates the colours after a change of theme, mode or highlight. */
export function recolour() {
  pixels = Object.fromEntries(Object.entries(theme).map(([name, colour]) => [name, pixelOf(colour)]));
  groups = device.groups[view.mode] ?? device.groups.category;
  groupPixels = Uint32Array.from(groups.colours, pixelOf);
  dimPixels = groupPixels.map((pixel) => mix(mix(pixel, pixels.muted, 0.6), pixels.back, 0.75));
  const { kind, allocations } = device.data;
  // Different shades separate neighbours of the same group.
  const shades = [0, 0.1, 0.05, 0.15];
  const bright = shades.map((share) => groupPixels.map((pixel) => mix(pixel, pixels.back, share)));
  // Lines that share a band in the timeline have colours of their own here, paler.
  const { lineOfKind } = device.stacks;
  const pale = LINE_COLOURS.map((colour) => mix(pixelOf(colour), pixels.muted, 0.5));
  const hasPale = groups === device.groups.line;
  rowPixels = new Uint32Array(allocations);
  for (let row = 0; row < allocations; row += 1) {
    const group = groups.groupOfKind[kind[row]];
    if (highlighted && !highlighted[row]) rowPixels[row] = dimPixels[group];
    else if (hasPale && group === MAX_LINES) rowPixels[row] = pale[lineOfKind[kind[row]] % pale.length];
    else rowPixels[row] = bright[row & 3][group];
  }
}

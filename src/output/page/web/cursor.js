// A cursor for the pictures: with the focus on one, up and down go through what it shows, and Enter does what a click does.

import { groups } from "./colours.js";
import { announce } from "./copy.js";
import { byId } from "./dom.js";
import { FLAME_ROW, boxBytes, clickFlame, flameBoxes, nodeText } from "./flame.js";
import { bytesText } from "./format.js";
import { onlyRows } from "./found.js";
import { mapLayout } from "./map.js";
import { sumsBy } from "./moment.js";
import { stackedRows } from "./raster.js";
import { segmentLifeText } from "./segments.js";
import { allocationText, showTooltip } from "./selection.js";
import { groupName } from "./timeline.js";
import { device, moment, select, selectSegment, setQuery, view } from "./view.js";

/**
 * @typedef {object} Target one thing in a picture
 * @property {string} text
 * @property {() => void} act
 * @property {number} [x] where it is in the picture, in CSS pixels
 * @property {number} [y]
 */

/** Most things that the cursor goes through in one picture. */
const MAX_TARGETS = 5000;

/** The timeline's stack at the moment, from the bottom. @returns {Target[]} */
function timelineTargets() {
  const stacked = stackedRows();
  if (!stacked) {
    return sumsBy(device, moment, groups.groupOfKind, onlyRows()).map(({ key, bytes }) => ({
      text: `${groupName(key)}: ${bytesText(bytes)}`,
      act: () => setQuery(groups.prefix + groups.names[key]),
    }));
  }
  const only = view.mode === "each" ? onlyRows() : null;
  const rows = [...stacked.sweep.live(view.moment)].filter((row) => !only || only[row]);
  const isSegment = view.mode === "segment";
  return rows.slice(-MAX_TARGETS).map((row) => ({
    text: isSegment ? segmentLifeText(row) : allocationText(row, 2),
    act: () => (isSegment ? selectSegment(row) : select(row)),
  }));
}

/** The blocks of the map, by pool and address. @returns {Target[]} */
function mapTargets() {
  const segments = mapLayout.tapes.flatMap((tape) => tape.segments);
  const rows = segments.flatMap((segment) => segment.rows).slice(0, MAX_TARGETS);
  return rows.map((row) => ({ text: allocationText(row, 2), act: () => select(row) }));
}

/** The boxes of the flame graph, row by row. @returns {Target[]} */
function flameTargets() {
  const boxes = [...flameBoxes].sort((a, b) => a.depth - b.depth || a.x - b.x);
  return boxes.map(({ x, depth, node }) => ({
    text: `${nodeText(node)}: ${bytesText(boxBytes(node))}`,
    act: () => clickFlame(node),
    x,
    y: depth * FLAME_ROW,
  }));
}

/** @param {string} id of the canvas @param {() => Target[]} targets */
function wireCursor(id, targets) {
  const canvas = byId(id);
  let at = -1;
  /** @param {Target | undefined} target */
  const tell = (target) => {
    if (!target) return;
    const box = canvas.getBoundingClientRect();
    const [x, y] = [target.x ?? 40, target.y ?? 40];
    showTooltip({ clientX: box.left + x, clientY: Math.max(0, box.top) + y }, target.text);
    announce(target.text);
  };
  canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by && event.key !== "Enter") return;
    event.preventDefault();
    const all = targets();
    at = Math.max(0, Math.min(all.length - 1, at + by));
    if (by) tell(all[at]);
    else all[at]?.act();
  });
  canvas.addEventListener("blur", () => {
    at = -1;
    showTooltip(null, "");
  });
}

export function wireCursors() {
  wireCursor("timeline", timelineTargets);
  wireCursor("map", mapTargets);
  wireCursor("flame", flameTargets);
}

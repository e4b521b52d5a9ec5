// Flame graph of the memory at the moment by stack: outermost frames on top, or the lines that allocated with their callers
// below.

import { dimPixels, groupPixels, groups, pixels } from "./colours.js";
import { byId, fitCanvas } from "./dom.js";
import { bytesText, percentText, shortPath } from "./format.js";
import { onlyRows } from "./found.js";
import { wireTooltip } from "./selection.js";
import { cssOf, mix, textColourOn, theme } from "./theme.js";
import { device, highlighted, moment, redraw, setQuery, view } from "./view.js";

export const FLAME_ROW = 19;
/** Node of the box for memory without a stack. */
const NO_STACK = -2;
const NO_BOX = -1;
/** @type {{x: number, width: number, depth: number, node: number}[]} */
export let flameBoxes = [];

/**
 * A tree of frames whose root is node 0. A parent precedes its children.
 * @typedef {object} FlameTree
 * @property {ArrayLike<number>} parent
 * @property {ArrayLike<number>} frame of each node, + 1
 * @property {(node: number) => number} leaf the node of a stack
 * @property {(node: number) => boolean} isBox
 * @property {Float64Array} bytes in and below each node
 * @property {Uint32Array} first child of each node
 * @property {Uint32Array} next sibling of each node
 * @property {Uint32Array} colours group of the largest allocation in or below each node
 * @property {Uint8Array} lit whether a highlighted allocation is in or below each node
 */
/** @type {FlameTree} */
let flameTree;

/** Stacks from the outermost frame, as recorded. */
function stackTree() {
  const { parent, frame } = device.stacks;
  const leaf = (/** @type {number} */ node) => node;
  return { parent, frame, leaf, isBox: (/** @type {number} */ node) => device.stacks.isBox(node) };
}

/** Stacks from the innermost frame: below each line are its callers. */
function callerTree() {
  const { stacks, data } = device;
  const [parent, frame] = [[0], [0]];
  /** @type {Map<number, number>} */
  const leaves = new Map();
  /** @type {Map<number, number>} */
  const known = new Map();
  for (const row of moment.rows) {
    const stack = data.node[data.kind[row]];
    if (leaves.has(stack)) continue;
    let node = 0;
    for (let at = stack; at > 0; at = stacks.parent[at]) {
      if (!stacks.isBox(at)) continue;
      const key = node * (stacks.frames + 1) + stacks.frame[at];
      if (!known.has(key)) known.set(key, parent.push(node) - 1) && frame.push(stacks.frame[at]);
      node = /** @type {number} */ (known.get(key));
    }
    leaves.set(stack, node);
  }
  return { parent, frame, leaf: (/** @type {number} */ node) => leaves.get(node) ?? 0, isBox: () => true };
}

/** Fills `flameTree`. */
function sumFlame() {
  const { data } = device;
  const tree = view.callers ? callerTree() : stackTree();
  const count = tree.parent.length;
  const bytes = new Float64Array(count);
  const biggest = new Float64Array(count);
  const [first, next, colours] = [new Uint32Array(count), new Uint32Array(count), new Uint32Array(count)];
  const lit = new Uint8Array(count);
  const only = onlyRows();
  for (const row of moment.rows) {
    if (data.freedAt[row] <= moment.m || (only && !only[row])) continue;
    const kind = data.kind[row];
    const node = tree.leaf(data.node[kind]);
    bytes[node] += data.bytes[row];
    if (highlighted?.[row]) lit[node] = 1;
    if (data.bytes[row] <= biggest[node]) continue;
    biggest[node] = data.bytes[row];
    colours[node] = groups.groupOfKind[kind];
  }
  for (let node = count - 1; node > 0; node -= 1) {
    if (!bytes[node]) continue;
    const up = tree.parent[node];
    bytes[up] += bytes[node];
    lit[up] |= lit[node];
    next[node] = first[up];
    first[up] = node;
    // A node has the colour of its largest descendant.
    if (bytes[node] <= biggest[up]) continue;
    biggest[up] = bytes[node];
    colours[up] = colours[node];
  }
  flameTree = { ...tree, bytes, first, next, colours, lit };
}

/** Whether the frame of a node is a user's. @param {number} node */
function isUsersNode(node) {
  return device.stacks.isUsers(flameTree.frame[node] - 1);
}

/** The child boxes of a node, largest first. Frames of the interpreter and native frames have no box. PyTorch's frames have one only if no user frame is below them, and consecutive ones share it. @param {number} node */
function boxesUnder(node) {
  const { first, next, bytes, isBox } = flameTree;
  const boxes = [];
  const open = [];
  for (let child = first[node]; child; child = next[child]) open.push(child);
  for (let at = open.pop(); at; at = open.pop()) {
    if (isBox(at)) boxes.push(at);
    else for (let child = first[at]; child; child = next[child]) open.push(child);
  }
  return boxes.sort((a, b) => bytes[b] - bytes[a] || a - b);
}

/** Skips PyTorch's frames that have a single box below with all of the memory. @param {number} node */
function unfold(node) {
  for (let at = node; ;) {
    if (!at || view.callers || isUsersNode(at)) return at;
    const under = boxesUnder(at);
    if (under.length !== 1 || flameTree.bytes[under[0]] !== flameTree.bytes[at]) return at;
    [at] = under;
  }
}

export function drawFlame() {
  const canvas = byId("flame");
  sumFlame();
  if (!flameTree.bytes[view.root]) view.root = 0;
  byId("callers").setAttribute("aria-pressed", String(view.callers));
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = canvas.clientWidth;
  if (!width) return;
  layOutFlame(width);
  const depth = flameBoxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
  canvas.parentElement.style.height = `${Math.max(3, depth) * FLAME_ROW + 2}px`;
  fitCanvas(canvas);
  const context = canvas.getContext("2d", { alpha: false });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = theme.back;
  context.fillRect(0, 0, width, canvas.clientHeight);
  context.font = "12px system-ui, sans-serif";
  for (const box of flameBoxes) drawFlameBox(context, box);
}

/** @param {number} width */
function layOutFlame(width) {
  flameBoxes = [];
  const scale = width / (flameTree.bytes[view.root] || 1);
  // The ancestors of the root have the full width.
  const above = [];
  for (let node = view.root; node > 0; node = flameTree.parent[node]) above.unshift(node);
  if (view.root) flameBoxes.push({ x: 0, width, depth: 0, node: 0 });
  let depth = view.root ? 1 : 0;
  for (const node of above.slice(0, -1)) {
    if (!view.callers && !isUsersNode(node)) continue;
    flameBoxes.push({ x: 0, width, depth, node });
    depth += 1;
  }
  const open = [{ node: view.root, x: 0, depth }];
  for (let box = open.pop(); box; box = open.pop()) {
    const node = unfold(box.node);
    const wide = flameTree.bytes[node] * scale;
    if (wide < 0.6 || box.depth > 60) continue;
    flameBoxes.push({ x: box.x, width: wide, depth: box.depth, node });
    let x = box.x;
    for (const child of boxesUnder(node)) {
      open.push({ node: child, x, depth: box.depth + 1 });
      x += flameTree.bytes[child] * scale;
    }
    // Memory with no frame to show has a box of its own beside the outermost frames.
    const rest = box.x + wide - x;
    if (!node && rest >= 0.6) flameBoxes.push({ x, width: rest, depth: box.depth + 1, node: NO_STACK });
  }
}

/** The function of a node, then where it is. @param {number} node */
export function nodeText(node) {
  if (node === NO_STACK) return "no Python stack recorded";
  if (!node) return `all allocated memory, ${bytesText(flameTree.bytes[0])}`;
  const { strings, name, file, line } = device.stacks;
  const frame = flameTree.frame[node] - 1;
  return `${strings[name[frame]]}  ${shortPath(strings[file[frame]])}:${line[frame]}`;
}

/** @param {CanvasRenderingContext2D} context @param {{x: number, width: number, depth: number, node: number}} box */
function drawFlameBox(context, { x, width, depth, node }) {
  const group = flameTree.colours[Math.max(0, node)];
  const dim = highlighted && !flameTree.lit[node];
  const base = node > 0 ? (dim ? dimPixels[group] : groupPixels[group]) : node ? pixels.line : pixels.card;
  const pixel = node > 0 && !isUsersNode(node) && !dim ? mix(base, pixels.back, 0.45) : base;
  context.fillStyle = cssOf(pixel);
  context.fillRect(x, depth * FLAME_ROW, Math.max(0.6, width - 1), FLAME_ROW - 1);
  if (width < 40) return;
  context.save();
  context.beginPath();
  context.rect(x, depth * FLAME_ROW, width - 4, FLAME_ROW);
  context.clip();
  context.fillStyle = textColourOn(pixel);
  const size = node && width > 220 ? `  ${bytesText(boxBytes(node))}` : "";
  context.fillText(nodeText(node) + size, x + 4, depth * FLAME_ROW + 13);
  context.restore();
}

/** Bytes of a box. @param {number} node */
export function boxBytes(node) {
  const { bytes } = flameTree;
  return node === NO_STACK ? boxesUnder(0).reduce((rest, box) => rest - bytes[box], bytes[0]) : bytes[node];
}

/** @param {any} event @returns {number} the node under the pointer, or `NO_BOX` */
function nodeAt(event) {
  const box = byId("flame").getBoundingClientRect();
  const [x, depth] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / FLAME_ROW)];
  return flameBoxes.find((box) => box.depth === depth && x >= box.x && x < box.x + box.width)?.node ?? NO_BOX;
}

/** @param {number} node */
export function setRoot(node) {
  view.root = node;
  redraw("flame", "hash");
}

/** Turns the graph over: from the outermost frames, or from the lines to their callers. */
function turnOver() {
  view.callers = !view.callers;
  setRoot(0);
}

/** A box is zoomed to; memory without a stack is highlighted. @param {number} node */
export function clickFlame(node) {
  if (node === NO_STACK) setQuery(view.query === "stack:none" ? "" : "stack:none");
  else if (node >= 0) setRoot(node === view.root ? 0 : node);
}

export function wireFlame() {
  byId("callers").addEventListener("click", turnOver);
  const canvas = byId("flame");
  wireTooltip(canvas, (event) => {
    const node = nodeAt(event);
    if (node === NO_BOX) return "";
    const frame = node > 0 ? device.stacks.frameText(flameTree.frame[node] - 1) : node ? nodeText(node) : "all stacks";
    const share = percentText(boxBytes(node), flameTree.bytes[0]);
    return `${frame}\n${bytesText(boxBytes(node))}, ${share} of what is allocated ${device.momentText(view.moment)}`;
  });
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => clickFlame(nodeAt(event)));
}

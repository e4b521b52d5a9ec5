// Flame graph of the memory at the moment by stack, outermost frames on top.

const FLAME_ROW = 19;
/** Node of the box for memory without a stack. */
const NO_STACK = -2;
const NO_BOX = -1;
/** @type {{x: number, width: number, depth: number, node: number}[]} */
let flameBoxes = [];
/** Bytes allocated in and below each node of the stack tree. */
let flameBytes = new Float64Array(0);

/** @type {{first: Uint32Array, next: Uint32Array, colours: Uint32Array} | null} */
let flameTree = null;

/** Fills `flameBytes` and `flameTree`. */
function sumFlame() {
  const { data, stacks } = device;
  const count = stacks.nodes;
  if (flameBytes.length !== count) flameBytes = new Float64Array(count);
  flameBytes.fill(0);
  const biggest = new Float64Array(count);
  const colours = new Uint32Array(count);
  const only = onlyRows();
  for (const row of moment.rows) {
    if (data.freedAt[row] <= moment.m || (only && !only[row])) continue;
    const kind = data.kind[row];
    flameBytes[data.node[kind]] += data.bytes[row];
    if (data.bytes[row] > biggest[data.node[kind]]) {
      biggest[data.node[kind]] = data.bytes[row];
      colours[data.node[kind]] = groups.groupOfKind[kind];
    }
  }
  const first = new Uint32Array(count);
  const next = new Uint32Array(count);
  for (let node = count - 1; node > 0; node -= 1) {
    if (!flameBytes[node]) continue;
    const up = stacks.parent[node];
    flameBytes[up] += flameBytes[node];
    next[node] = first[up];
    first[up] = node;
    // A node has the colour of its largest descendant.
    if (flameBytes[node] > biggest[up]) {
      biggest[up] = flameBytes[node];
      colours[up] = colours[node];
    }
  }
  flameTree = { first, next, colours };
}

/**
 * The child boxes of a node, largest first. Frames of the interpreter and native frames have no box. PyTorch's frames
 * have one only if no user frame is below them, and consecutive ones share it.
 * @param {number} node
 */
function boxesUnder(node) {
  const { first, next } = /** @type {any} */ (flameTree);
  const { stacks } = device;
  const boxes = [];
  const open = [];
  for (let child = first[node]; child; child = next[child]) open.push(child);
  for (let at = open.pop(); at; at = open.pop()) {
    if (stacks.isBox(at)) boxes.push(at);
    else for (let child = first[at]; child; child = next[child]) open.push(child);
  }
  return boxes.sort((a, b) => flameBytes[b] - flameBytes[a] || a - b);
}

/** Skips PyTorch's frames that have a single box below with all of the memory. @param {number} node */
function unfold(node) {
  const { stacks } = device;
  for (let at = node; ;) {
    if (!at || stacks.isUsers(stacks.frame[at] - 1)) return at;
    const under = boxesUnder(at);
    if (under.length !== 1 || flameBytes[under[0]] !== flameBytes[at]) return at;
    [at] = under;
  }
}

function drawFlame() {
  const canvas = byId("flame");
  sumFlame();
  if (!flameBytes[view.root]) view.root = 0;
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
  const highlightedNodes = highlighted ? nodesWithHighlight() : null;
  for (const box of flameBoxes) drawFlameBox(context, box, highlightedNodes);
}

/** @param {number} width */
function layOutFlame(width) {
  flameBoxes = [];
  const scale = width / (flameBytes[view.root] || 1);
  // The ancestors of the root have the full width.
  const above = [];
  for (let node = view.root; node > 0; node = device.stacks.parent[node]) above.unshift(node);
  if (view.root) flameBoxes.push({ x: 0, width, depth: 0, node: 0 });
  let depth = view.root ? 1 : 0;
  for (const node of above.slice(0, -1)) {
    if (!device.stacks.isUsers(device.stacks.frame[node] - 1)) continue;
    flameBoxes.push({ x: 0, width, depth, node });
    depth += 1;
  }
  const open = [{ node: view.root, x: 0, depth }];
  for (let box = open.pop(); box; box = open.pop()) {
    const node = unfold(box.node);
    const wide = flameBytes[node] * scale;
    if (wide < 0.6 || box.depth > 60) continue;
    flameBoxes.push({ x: box.x, width: wide, depth: box.depth, node });
    let x = box.x;
    for (const child of boxesUnder(node)) {
      open.push({ node: child, x, depth: box.depth + 1 });
      x += flameBytes[child] * scale;
    }
    // Memory with no frame to show has a box of its own beside the outermost frames.
    const rest = box.x + wide - x;
    if (!node && rest >= 0.6) flameBoxes.push({ x, width: rest, depth: box.depth + 1, node: NO_STACK });
  }
}

/** Nodes with a highlighted allocation in or below them, at the moment. */
function nodesWithHighlight() {
  const { data, stacks } = device;
  const nodes = new Uint8Array(stacks.nodes);
  for (const row of moment.rows) if (highlighted?.[row]) nodes[data.node[data.kind[row]]] = 1;
  for (let node = stacks.nodes - 1; node > 0; node -= 1) nodes[stacks.parent[node]] |= nodes[node];
  return nodes;
}

/** @param {number} node */
function nodeText(node) {
  if (node === NO_STACK) return "no Python stack recorded";
  if (!node) return `all allocated memory, ${bytesText(flameBytes[0])}`;
  return device.stacks.shortText(device.stacks.frame[node] - 1);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{x: number, width: number, depth: number, node: number}} box
 * @param {Uint8Array | null} highlightedNodes
 */
function drawFlameBox(context, { x, width, depth, node }, highlightedNodes) {
  const { stacks } = device;
  const group = /** @type {any} */ (flameTree).colours[Math.max(0, node)];
  const isUsers = node > 0 && stacks.isUsers(stacks.frame[node] - 1);
  const dim = highlightedNodes && !highlightedNodes[node];
  const base = node > 0 ? (dim ? dimPixels[group] : groupPixels[group]) : node ? pixels.line : pixels.card;
  const pixel = node > 0 && !isUsers && !dim ? mix(base, pixels.back, 0.45) : base;
  context.fillStyle = cssOf(pixel);
  context.fillRect(x, depth * FLAME_ROW, Math.max(0.6, width - 1), FLAME_ROW - 1);
  if (width < 40) return;
  context.save();
  context.beginPath();
  context.rect(x, depth * FLAME_ROW, width - 4, FLAME_ROW);
  context.clip();
  const light = 0.299 * (pixel & 255) + 0.587 * ((pixel >>> 8) & 255) + 0.114 * ((pixel >>> 16) & 255) > 140;
  context.fillStyle = light ? "#101418" : "#ffffff";
  context.fillText(
    `${nodeText(node)}${node && width > 220 ? `  ${bytesText(boxBytes(node))}` : ""}`,
    x + 4,
    depth * FLAME_ROW + 13,
  );
  context.restore();
}

/** Bytes of a box. @param {number} node */
function boxBytes(node) {
  if (node !== NO_STACK) return flameBytes[node];
  return boxesUnder(0).reduce((rest, box) => rest - flameBytes[box], flameBytes[0]);
}

/** @param {any} event @returns {number} the node under the pointer, or `NO_BOX` */
function nodeAt(event) {
  const box = byId("flame").getBoundingClientRect();
  const [x, depth] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / FLAME_ROW)];
  return flameBoxes.find((box) => box.depth === depth && x >= box.x && x < box.x + box.width)?.node ?? NO_BOX;
}

/** @param {number} node */
function setRoot(node) {
  view.root = node;
  redraw("flame", "hash");
}

/** A box is zoomed to; memory without a stack is highlighted. @param {number} node */
function clickFlame(node) {
  if (node === NO_STACK) setQuery(view.query === "stack:none" ? "" : "stack:none");
  else if (node >= 0) setRoot(node === view.root ? 0 : node);
}

function wireFlame() {
  const canvas = byId("flame");
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const node = nodeAt(event);
    if (node === NO_BOX) return showTooltip(null, "");
    const share = percentText(boxBytes(node), flameBytes[0]);
    return showTooltip(
      event,
      `${node > 0 ? device.stacks.frameText(device.stacks.frame[node] - 1) : node ? nodeText(node) : "all stacks"}\n${bytesText(boxBytes(node))}, ${share} of what is allocated ${device.momentText(view.moment)}`,
    );
  });
  canvas.addEventListener("pointerleave", () => showTooltip(null, ""));
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const node = nodeAt(event);
    clickFlame(node);
  });
}

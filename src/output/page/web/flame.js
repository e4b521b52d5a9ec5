// Whose stacks hold the memory of the moment: a flame graph that hangs, outermost frames on top.

const FLAME_ROW = 19;
/** @type {{x: number, width: number, depth: number, node: number}[]} */
let flameBoxes = [];
/** Bytes under each node at the moment. */
let flameBytes = new Float64Array(0);

/** @type {{first: Uint32Array, next: Uint32Array, colours: Uint32Array} | null} */
let flameTree = null;

/** Sums the moment's allocated bytes up the tree. */
function sumFlame() {
  const { data, stacks } = device;
  const count = stacks.nodes;
  if (flameBytes.length !== count) flameBytes = new Float64Array(count);
  flameBytes.fill(0);
  const biggest = new Float64Array(count);
  const colours = new Uint32Array(count);
  for (const row of moment.rows) {
    if (data.req[row] <= moment.m) continue;
    const kind = data.kind[row];
    flameBytes[data.node[kind]] += data.bytes[row];
    if (data.bytes[row] > biggest[data.node[kind]]) {
      biggest[data.node[kind]] = data.bytes[row];
      colours[data.node[kind]] = groups.of[kind];
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
    // The colour of what holds most below.
    if (flameBytes[node] > biggest[up]) {
      biggest[up] = flameBytes[node];
      colours[up] = colours[node];
    }
  }
  flameTree = { first, next, colours };
}

/**
 * The boxes under a node, largest first. Frames of the interpreter and of native code have none; PyTorch's own have one
 * where no code of the user's lies below, and those that follow one another share it.
 * @param {number} node
 */
function boxesUnder(node) {
  const { first, next } = /** @type {any} */ (flameTree);
  const { stacks } = device;
  const boxes = [];
  const open = [];
  for (let child = first[node]; child; child = next[child]) open.push(child);
  for (let at = open.pop(); at; at = open.pop()) {
    if (stacks.isUsers(stacks.frame[at] - 1) || (stacks.isTorch(stacks.frame[at] - 1) && !stacks.hasUsersBelow[at]))
      boxes.push(at);
    else for (let child = first[at]; child; child = next[child]) open.push(child);
  }
  return boxes.sort((a, b) => flameBytes[b] - flameBytes[a] || a - b);
}

/** Goes down while one box of PyTorch's own holds everything. @param {number} node */
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
  layFlame(width);
  const depth = flameBoxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
  canvas.parentElement.style.height = `${Math.max(3, depth) * FLAME_ROW + 2}px`;
  fitCanvas(canvas);
  const context = canvas.getContext("2d", { alpha: false });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = theme.back;
  context.fillRect(0, 0, width, canvas.clientHeight);
  context.font = "12px system-ui, sans-serif";
  const litNodes = lit ? nodesLit() : null;
  for (const box of flameBoxes) drawFlameBox(context, box, litNodes);
}

/** @param {number} width */
function layFlame(width) {
  flameBoxes = [];
  const scale = width / (flameBytes[view.root] || 1);
  // Those above the root, whole.
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
  }
}

/** Nodes with a lit allocation in or below them, at the moment. */
function nodesLit() {
  const { data, stacks } = device;
  const nodes = new Uint8Array(stacks.nodes);
  for (const row of moment.rows) if (lit?.[row]) nodes[data.node[data.kind[row]]] = 1;
  for (let node = stacks.nodes - 1; node > 0; node -= 1) nodes[stacks.parent[node]] |= nodes[node];
  return nodes;
}

/** @param {number} node */
function nodeText(node) {
  if (!node) return `all allocated memory, ${bytesText(flameBytes[0])}`;
  return device.stacks.shortText(device.stacks.frame[node] - 1);
}

/** @param {CanvasRenderingContext2D} context @param {{x: number, width: number, depth: number, node: number}} box @param {Uint8Array | null} litNodes */
function drawFlameBox(context, { x, width, depth, node }, litNodes) {
  const { stacks } = device;
  const group = /** @type {any} */ (flameTree).colours[node];
  const own = node > 0 && stacks.isUsers(stacks.frame[node] - 1);
  const dim = litNodes && !litNodes[node];
  const base = node ? (dim ? dimPixels[group] : groupPixels[group]) : pixels.card;
  const pixel = node && !own && !dim ? mix(base, pixels.back, 0.45) : base;
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
    `${nodeText(node)}${node && width > 220 ? `  ${bytesText(flameBytes[node])}` : ""}`,
    x + 4,
    depth * FLAME_ROW + 13,
  );
  context.restore();
}

/** @param {any} event @returns {number} the node under the pointer, or -1 */
function atFlame(event) {
  const box = byId("flame").getBoundingClientRect();
  const [x, depth] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / FLAME_ROW)];
  return flameBoxes.find((one) => one.depth === depth && x >= one.x && x < one.x + one.width)?.node ?? -1;
}

/** @param {number} node */
function setRoot(node) {
  view.root = node;
  redraw("flame");
}

function wireFlame() {
  const canvas = byId("flame");
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const node = atFlame(event);
    if (node < 0) return showTip(null, "");
    const share = percentText(flameBytes[node], flameBytes[0]);
    return showTip(
      event,
      `${node ? device.stacks.frameText(device.stacks.frame[node] - 1) : "all stacks"}\n${bytesText(flameBytes[node])}, ${share} of what is allocated ${device.momentText(view.m)}`,
    );
  });
  canvas.addEventListener("pointerleave", () => showTip(null, ""));
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const node = atFlame(event);
    if (node >= 0) setRoot(node === view.root ? 0 : node);
  });
}

// The entries around the moment, as PyTorch recorded them, and everything known of the last one applied.

import { ALLOC, FREE_REQUESTED } from "./columns.js";
import { byId, make, mutedText } from "./dom.js";
import { shortLine } from "./figures.js";
import { bytesText, countText, secondsText } from "./format.js";
import { lifeText, stackBlock, variableText } from "./selection.js";
import { device, select, selectSegment, setMoment, view } from "./view.js";

/** Entries shown before and after the moment's own. */
const ENTRIES_BEFORE = 12;
const ENTRIES_AFTER = 24;

/** The meaning of each action. @type {Record<string, string>} */
const ACTIONS = {
  alloc: "a block is allocated to the program",
  free_requested: "the program frees a block",
  free_completed: "the block is free for other requests, once every stream that used it is done",
  segment_alloc: "PyTorch gets a segment from the device (cudaMalloc)",
  segment_free: "PyTorch returns a segment to the device (cudaFree)",
  segment_map: "PyTorch maps device memory into an expandable segment",
  segment_unmap: "PyTorch returns mapped memory of an expandable segment to the device",
  oom: "a request fails: out of memory",
  snapshot: "the snapshot is taken",
};

const NO_STACK_OF_FREE =
  'No stack of its own is recorded. PyTorch records one if Python code frees the block, with context="all".';

/**
 * @typedef {object} Entry
 * @property {string} action as in the trace
 * @property {number} row the allocation, or -1
 * @property {number} segment the range of device memory, or -1
 * @property {number} bytes
 * @property {number | null} addr in units
 * @property {string} stream
 * @property {number} node of its own stack, 0 if none is recorded
 */

/** The entry after which moment m is. @param {number} m @returns {Entry} */
export function traceEntry(m) {
  const { data } = device;
  const { streams, unit } = data.header;
  const failure = device.failureAt(m);
  if (failure) {
    const { requested_bytes: bytes, stream, node } = failure;
    return { action: "oom", row: -1, segment: -1, bytes, addr: null, stream: streams[stream], node };
  }
  const [row, change] = shownChange(m);
  if (row >= 0) {
    const kind = data.kind[row];
    const action = change === ALLOC ? "alloc" : change === FREE_REQUESTED ? "free_requested" : "free_completed";
    const node = change === ALLOC ? data.node[kind] : data.freeNode[row];
    const stream = streams[data.stream[kind]];
    return { action, row, segment: -1, bytes: data.requested[kind], addr: data.addr[row], stream, node };
  }
  const segment = device.segmentChanges.get(m);
  if (segment) {
    const { at, bytes } = segment;
    const word = data.segmentFlags[at] & 2 ? ["segment_map", "segment_unmap"] : ["segment_alloc", "segment_free"];
    const node = bytes > 0 ? data.segmentNode[at] : data.segmentFreeNode[at];
    const [action, stream] = [word[bytes > 0 ? 0 : 1], streams[data.segmentStream[at]]];
    return { action, row: -1, segment: at, bytes: Math.abs(bytes) * unit, addr: segment.addr, stream, node };
  }
  const isSnapshot = data.header.marks.some((/** @type {any} */ mark) => mark.moment === m && mark.kind === "snapshot");
  const action = isSnapshot ? "snapshot" : data.undrawn ? "left out of this page" : "other";
  return { action, row: -1, segment: -1, bytes: 0, addr: null, stream: "", node: 0 };
}

/** The allocation that an entry changes, and how; -1 if none. @param {number} m @returns {[number, number]} */
function shownChange(m) {
  const { changes, changeStart } = device.data;
  const last = changeStart[m + 1] - 1;
  // An allocation is listed last; the memory that it replaces, if the file contradicts itself, before it.
  return last >= changeStart[m] ? [changes[last] >>> 2, changes[last] & 3] : [-1, 0];
}

/** The frame that represents a stack in a list. @param {Entry} entry */
function entryLine({ action, row, node }) {
  const { data, stacks } = device;
  if (action === "alloc" && row >= 0) return shortLine(stacks.lineLabel(stacks.lineOfKind[data.kind[row]]));
  const frames = stacks.shownFrames(node);
  const frame = frames.find((one) => stacks.isUsers(one)) ?? frames[0];
  if (frame !== undefined) return stacks.shortText(frame);
  if (row < 0) return "";
  return `allocated at ${shortLine(stacks.lineLabel(stacks.lineOfKind[data.kind[row]]))}`;
}

export function drawEntries() {
  if (view.pane !== "entries") return;
  const { entries } = device.data;
  const list = byId("entry-list");
  if (!entries) {
    list.replaceChildren(mutedText("No history was recorded."));
    byId("entry").replaceChildren();
    return;
  }
  const first = Math.max(1, Math.min(view.moment - ENTRIES_BEFORE, entries - ENTRIES_BEFORE - ENTRIES_AFTER));
  const rows = [];
  for (let m = first; m <= Math.min(entries, first + ENTRIES_BEFORE + ENTRIES_AFTER); m += 1) rows.push(entryRow(m));
  list.replaceChildren(...rows);
  const current = list.querySelector("[aria-current]");
  if (current) list.scrollTop = current.offsetTop - list.clientHeight / 3;
  byId("entry").replaceChildren(...(view.moment ? entryDetails(view.moment) : []));
}

/** Address and stream. @param {Entry} entry */
function placeOf({ addr, stream }) {
  return [addr === null ? null : device.data.address(addr), stream ? `stream ${stream}` : null].filter((text) => text);
}

/** @param {number} m */
function entryRow(m) {
  const entry = traceEntry(m);
  const look = { class: `entry ${entry.action === "oom" ? "bad" : ""}`, title: ACTIONS[entry.action] };
  const isNow = m === view.moment ? "true" : null;
  return make(
    "button",
    { ...look, "aria-current": isNow, tabindex: "-1", onclick: () => setMoment(m) },
    make("span", { class: "n" }, device.entryText(m)),
    make("b", {}, entry.action),
    make("span", { class: "n" }, entry.bytes ? bytesText(entry.bytes) : ""),
    make("span", { class: "muted where" }, [entryLine(entry), ...placeOf(entry)].filter(Boolean).join(" · ")),
  );
}

/** @param {number} m @returns {Node[]} */
function entryDetails(m) {
  const entry = traceEntry(m);
  const { data } = device;
  const time = data.hasTime ? `, at ${secondsText(data.time[m])}` : "";
  const inside = data.header.ranges
    .filter((/** @type {any} */ range) => range.start < m && m <= range.end)
    .map((/** @type {any} */ range) => `${range.source === "user_metadata" ? "user_metadata" : "in"} ${range.name}`);
  const size = entry.bytes ? ` ${countText(entry.bytes)} bytes` : "";
  const about = [size, ...placeOf(entry).map((text) => `, ${text}`), time].join("");
  const nodes = [
    make("p", {}, make("b", {}, `entry ${device.entryText(m)}: ${entry.action}`), about),
    ...(ACTIONS[entry.action] ? [mutedText(ACTIONS[entry.action])] : []),
    ...inside.map(mutedText),
  ];
  if (entry.row >= 0) {
    nodes.push(make("p", {}, lifeText(entry.row)));
    const variable = variableText(data.kind[entry.row]);
    if (variable) nodes.push(make("p", {}, variable));
    nodes.push(make("p", {}, make("button", { onclick: () => select(entry.row) }, "select this allocation")));
  }
  if (entry.segment >= 0)
    nodes.push(make("p", {}, make("button", { onclick: () => selectSegment(entry.segment) }, "select this segment")));
  const isFree = entry.action.startsWith("free");
  if (isFree && !entry.node) nodes.push(mutedText(NO_STACK_OF_FREE));
  else nodes.push(...stackBlock(isFree ? "freed by" : "stack", entry.node));
  if (isFree) nodes.push(...stackBlock("allocated by", data.node[data.kind[entry.row]]));
  return nodes;
}

/** The list with a key of its own: up and down step as left and right do. */
export function wireEntries() {
  byId("pane-entries").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    setMoment(view.moment + by);
  });
}

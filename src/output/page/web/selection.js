// One allocation as text, and the tooltip.

import { copyButton } from "./copy.js";
import { byId, bytesCell, controls, make, makeTable, mutedText } from "./dom.js";
import { shortLine } from "./figures.js";
import { bytesText, countOf, countText } from "./format.js";
import { poolStreamText } from "./map.js";
import { segmentDetails } from "./segments.js";
import { device, select, setMoment, setQuery, setZoom, view } from "./view.js";

/** @param {number} row @param {number} maxFrames */
export function allocationText(row, maxFrames) {
  const { data, stacks } = device;
  const kind = data.kind[row];
  const requested = data.requested[kind];
  const size = `${bytesText(data.bytes[row])}${requested === data.bytes[row] ? "" : `, ${countText(requested)} bytes requested`}`;
  const place = poolStreamText(data.pool[kind], data.stream[kind]);
  const lines = [`${size}: ${device.categoryText(kind)}, ${place}`, lifeText(row)];
  const variable = variableText(kind);
  if (variable) lines.push(variable);
  const frames = stacks.shownFrames(data.node[kind]);
  if (!frames.length) lines.push("no stack recorded");
  for (const frame of frames.slice(0, maxFrames))
    lines.push(`${stacks.isUsers(frame) ? "▸ " : "   "}${stacks.frameText(frame)}`);
  if (frames.length > maxFrames) lines.push(`   and ${countOf(frames.length - maxFrames, "more frame")}`);
  return lines.join("\n");
}

/** The variable that keeps an allocation; empty if none is known. @param {number} kind */
export function variableText(kind) {
  const { data } = device;
  const row = data.variable[kind];
  if (!row) return "";
  const { name, about } = data.header.variables[row];
  return `kept by ${name}${about ? `: ${about}` : ""}`;
}

/** Lifetime of an allocation. @param {number} row */
export function lifeText(row) {
  const { allocatedAt, freedAt, completedAt, entries } = device.data;
  const start = allocatedAt[row];
  const begins = start ? `allocated at entry ${device.entryText(start)}` : "from before the first entry";
  if (freedAt[row] > entries) return `${begins}, live to the end`;
  const ends = `${begins}, freed at entry ${device.entryText(freedAt[row])}, ${countOf(freedAt[row] - start, "entry")} later`;
  if (completedAt[row] > entries) return `${ends}; its memory still waits for another stream`;
  if (completedAt[row] <= freedAt[row] + 1) return ends;
  return `${ends}; its memory waited for another stream until entry ${device.entryText(completedAt[row])}`;
}

const NOTHING_SELECTED =
  "Click an allocation or a segment in the timeline (“each allocation”, “each segment”), in the address map or in a table.";

export function drawSelection() {
  const body = byId("selection");
  if (view.segment >= 0) body.replaceChildren(...segmentDetails(view.segment));
  else if (view.selected >= 0) body.replaceChildren(...selectedDetails(view.selected));
  else body.replaceChildren(mutedText(NOTHING_SELECTED));
}

/** @param {number} row @returns {Node[]} */
function selectedDetails(row) {
  const { data, stacks } = device;
  const kind = data.kind[row];
  const [size, life] = allocationText(row, 0).split("\n");
  const variable = variableText(kind);
  /** @param {string} text @param {() => void} does */
  const button = (text, does) => make("button", { onclick: does }, text);
  const { freeNode } = data;
  const name = data.header.variables?.[data.variable[kind]]?.name;
  return [
    make("p", {}, make("b", {}, size)),
    make("p", {}, `${life}; at ${data.address(data.addr[row]) ?? "an unknown address"}`),
    ...(variable ? [make("p", {}, variable)] : []),
    controls(
      button("when allocated", () => setMoment(data.allocatedAt[row])),
      button("when freed", () => setMoment(Math.min(data.entries, data.freedAt[row]))),
      button("zoom to its life", () => zoomToLife(row)),
      button("highlight its line", () => setQuery(`line:${stacks.lineLabel(stacks.lineOfKind[kind])}`)),
      ...(variable ? [button("highlight its variable", () => setQuery(`variable:${name}`))] : []),
      button("unselect", () => select(-1)),
    ),
    ...stackBlock("allocated by", data.node[kind]),
    ...(freeNode[row] ? stackBlock("freed by", freeNode[row]) : []),
  ];
}

/** @param {number} row */
function zoomToLife(row) {
  const { allocatedAt, completedAt, entries } = device.data;
  setZoom(allocatedAt[row] - 20, Math.min(entries + 1, completedAt[row]) + 20);
}

/** A stack with a title and a button that copies it. @param {string} title @param {number} node @returns {Node[]} */
export function stackBlock(title, node) {
  const copy = () => device.stacks.stackText(node);
  return [
    make("h3", { class: "bar" }, title, ...(node ? [copyButton("copy stack", copy)] : [])),
    ...(node ? stackElements(node) : [mutedText("no stack recorded")]),
  ];
}

/** A table of allocations, each of which can be selected. @param {string} caption @param {number[]} rows */
export function allocationTable(caption, rows) {
  const { data, stacks } = device;
  const cells = rows.map((row) => [
    bytesCell(data.bytes[row]),
    data.allocatedAt[row] ? device.entryText(data.allocatedAt[row]) : "before",
    shortLine(stacks.lineLabel(stacks.lineOfKind[data.kind[row]])),
  ]);
  return makeTable(caption, ["#bytes", "#entry", "line"], cells, (at) => select(rows[at]));
}

/** The frames of a stack, innermost first. The interpreter's and native frames are folded. @param {number} node @returns {Node[]} */
function stackElements(node) {
  const { stacks } = device;
  const all = stacks.framesOf(node);
  if (!all.length) return [mutedText("no stack recorded")];
  const item = (/** @type {number} */ frame) =>
    make("li", { class: stacks.isUsers(frame) ? "own" : null }, stacks.frameText(frame));
  const list = (/** @type {number[]} */ frames) => make("ol", { class: "stack" }, ...frames.map(item));
  const shown = stacks.shownFrames(node);
  if (shown.length === all.length) return [list(all)];
  return [list(shown), make("details", {}, make("summary", {}, `all ${all.length} frames`), list(all))];
}

/** Shows a text beside the pointer as long as it is on an element; none if it is empty. @param {any} element @param {(event: PointerEvent) => string} text */
export function wireTooltip(element, text) {
  element.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => showTooltip(event, text(event)));
  element.addEventListener("pointerleave", () => showTooltip(null, ""));
}

/** @param {any} event where, or null to hide @param {string} text */
export function showTooltip(event, text) {
  const tip = byId("tip");
  tip.hidden = !event || !text;
  if (tip.hidden) return;
  tip.textContent = text;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
  const below = event.clientY + 16 + tip.offsetHeight < window.innerHeight;
  tip.style.top = `${below ? event.clientY + 16 : Math.max(4, event.clientY - 12 - tip.offsetHeight)}px`;
}

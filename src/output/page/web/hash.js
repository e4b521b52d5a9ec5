// The view in the address of the page, so that a link shows the same.

import { isViewerAround } from "./frame.js";
import { startView } from "./start_view.js";
import { device, view } from "./view.js";
/** @import { View } from "./view.js" */

let hashTimer = 0;
let writtenHash = "?";
/** The part of the last address that gets an entry in the browser's history when it changes. */
let visited = "";
/** Whether the view follows a change of the address, as after Back. */
let isFollowing = false;

/** Whether the address is another one than the page wrote, which the view then follows. */
export function followHash() {
  const isOther = location.hash !== writtenHash;
  isFollowing ||= isOther;
  return isOther;
}

/** Everything but the moment, the zoom and the pane. */
function historyKey() {
  const { page, mode, axis, selected, segment, query, filter, only, from, fromPage, root, callers } = view;
  return [page, mode, axis, selected, segment, query, filter, only, from, fromPage, root, callers].join("|");
}

function formatHash() {
  const parts = [`t=${view.moment}`, `v=${Math.round(view.start)}-${Math.round(view.end)}`, `m=${view.mode}`];
  if (view.axis !== "entry") parts.push(`x=${view.axis}`);
  if (view.selected >= 0) parts.push(`sel=${view.selected}`);
  if (view.filter) parts.push(`f=${encodeURIComponent(view.filter)}`);
  if (view.only) parts.push("only=1");
  if (view.from >= 0) parts.push(`a=${view.fromPage}.${view.from}`);
  if (view.segment >= 0) parts.push(`seg=${view.segment}`);
  if (view.query !== startView(device, view.page, {}).query) parts.push(`q=${encodeURIComponent(view.query)}`);
  parts.push(`d=${view.pane}`);
  if (view.root) parts.push(`r=${view.root}`);
  if (view.callers) parts.push("callers=1");
  if (view.page) parts.push(`page=${view.page}`);
  return `#${parts.join("&")}`;
}

export function drawHash() {
  clearTimeout(hashTimer);
  hashTimer = setTimeout(() => {
    writtenHash = formatHash();
    try {
      const key = historyKey();
      if (visited && key !== visited && !isFollowing) history.pushState(null, "", writtenHash);
      else history.replaceState(null, "", writtenHash);
      visited = key;
    } catch {
      // Some viewers forbid it; the page works without.
    }
    if (isViewerAround) window.parent.postMessage({ view: writtenHash }, "*");
    isFollowing = false;
  }, 250);
}

/** The view that an address requests. @param {string} hash @returns {Partial<View>} */
export function parseHash(hash) {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Partial<View>} */
  const changes = {};
  const numbers = { moment: "t", selected: "sel", segment: "seg", root: "r", page: "page" };
  for (const [property, name] of Object.entries(numbers)) {
    const text = parameters.get(name);
    if (text !== null && Number.isFinite(Number(text))) Object.assign(changes, { [property]: Number(text) });
  }
  const zoom = /^(\d+)-(\d+)$/.exec(parameters.get("v") || "");
  if (zoom) [changes.start, changes.end] = [Number(zoom[1]), Number(zoom[2])];
  const mode = parameters.get("m");
  if (mode && document.querySelector(`[data-mode="${CSS.escape(mode)}"]`))
    changes.mode = /** @type {View["mode"]} */ (mode);
  if (parameters.get("x") === "time") changes.axis = "time";
  const query = parameters.get("q");
  if (query !== null) changes.query = query;
  const filter = parameters.get("f");
  if (filter) changes.filter = filter;
  changes.only = parameters.has("only");
  changes.callers = parameters.has("callers");
  const from = /^(\d+)\.(\d+)$/.exec(parameters.get("a") || "");
  if (from) [changes.fromPage, changes.from] = [Number(from[1]), Number(from[2])];
  const pane = parameters.get("d");
  if (pane) changes.pane = pane;
  return changes;
}

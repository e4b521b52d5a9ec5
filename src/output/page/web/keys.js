// Keyboard shortcuts.

import { setFrom } from "./compare.js";
import { byId } from "./dom.js";
import { setRoot } from "./flame.js";
import { clearSearch } from "./found.js";
import { nextFailure, showWhole } from "./slider.js";
import { panBy } from "./timeline.js";
import { device, select, selectSegment, setMoment, setZoom, view } from "./view.js";

/** Zooms around the moment. @param {number} factor */
function zoomMoment(factor) {
  const half = ((view.end - view.start) * factor) / 2;
  setZoom(view.moment - half, view.moment + half);
}

function unselect() {
  clearSearch();
  select(-1);
  selectSegment(-1);
  setRoot(0);
}

/** What each key does; keys that do the same are words of one name. @type {Record<string, (event: KeyboardEvent) => void>} */
const KEY_ACTIONS = {
  ArrowRight: ({ shiftKey }) => setMoment(view.moment + (shiftKey ? 10 : 1)),
  ArrowLeft: ({ shiftKey }) => setMoment(view.moment - (shiftKey ? 10 : 1)),
  Home: () => setMoment(0),
  End: () => setMoment(device.data.entries),
  a: () => panBy(-0.2),
  f: () => panBy(0.2),
  "w + =": () => zoomMoment(0.5),
  "s -": () => zoomMoment(2),
  0: () => showWhole(),
  p: () => setMoment(device.totals.peak),
  o: () => nextFailure(),
  "d m": () => setFrom(view.moment),
  "[": () => goToStep(-1),
  "]": () => goToStep(1),
  "/": () => byId("query").focus(),
  "?": () => byId("keys").showModal(),
  Escape: unselect,
};

/** Goes to the next end of a training step, or the previous one. @param {number} by */
function goToStep(by) {
  /** @type {number[]} */
  const steps = device.data.header.steps;
  const next = by > 0 ? steps.find((m) => m > view.moment) : steps.findLast((m) => m < view.moment);
  if (next !== undefined) setMoment(next);
}

export function wireKeys() {
  byId("close-keys").addEventListener("click", () => byId("keys").close());
  addEventListener("keydown", (event) => {
    const target = /** @type {any} */ (event.target);
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName || "") && target.type !== "range";
    if (!device || typing || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    const name = Object.keys(KEY_ACTIONS).find((keys) => keys.split(" ").includes(event.key));
    if (!name) return;
    event.preventDefault();
    KEY_ACTIONS[name](event);
  });
}

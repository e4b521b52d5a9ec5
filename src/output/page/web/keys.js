// Keyboard shortcuts.

import { setFrom } from "./compare.js";
import { byId } from "./dom.js";
import { setRoot } from "./flame.js";
import { clearSearch } from "./found.js";
import { nextFailure, showWhole } from "./slider.js";
import { panBy } from "./timeline.js";
import { device, select, selectSegment, setMoment, setZoom, view } from "./view.js";

/** @param {KeyboardEvent} event @returns {(() => void) | undefined} */
function actionForKey(event) {
  const step = event.shiftKey ? 10 : 1;
  const width = view.end - view.start;
  switch (event.key) {
    case "ArrowRight":
      return () => setMoment(view.moment + step);
    case "ArrowLeft":
      return () => setMoment(view.moment - step);
    case "Home":
      return () => setMoment(0);
    case "End":
      return () => setMoment(device.data.entries);
    case "a":
      return () => panBy(-0.2);
    case "f":
      return () => panBy(0.2);
    case "w":
    case "+":
    case "=":
      return () => setZoom(view.moment - width / 4, view.moment + width / 4);
    case "s":
    case "-":
      return () => setZoom(view.moment - width, view.moment + width);
    case "0":
      return showWhole;
    case "p":
      return () => setMoment(device.totals.peak);
    case "o":
      return nextFailure;
    case "d":
    case "m":
      return () => setFrom(view.moment);
    case "[":
      return () => goToStep(-1);
    case "]":
      return () => goToStep(1);
    case "/":
      return () => byId("query").focus();
    case "?":
      return () => byId("keys").showModal();
    case "Escape":
      return () => {
        clearSearch();
        select(-1);
        selectSegment(-1);
        setRoot(0);
      };
    default:
      return undefined;
  }
}

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
    const action = actionForKey(event);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

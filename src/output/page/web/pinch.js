// Two fingers on the timeline zoom it.

import { byId, pointIn } from "./dom.js";
import { panBy, zoomBy } from "./timeline.js";

export function wirePinch() {
  const canvas = byId("timeline");
  /** @type {Map<number, PointerEvent>} */
  const fingers = new Map();
  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    if (event.pointerType === "touch") fingers.set(event.pointerId, event);
  });
  // Before the listener of the timeline, which pans.
  canvas.addEventListener(
    "pointermove",
    (/** @type {PointerEvent} */ event) => {
      if (!fingers.has(event.pointerId)) return;
      if (fingers.size !== 2) {
        fingers.set(event.pointerId, event);
        return;
      }
      event.stopImmediatePropagation();
      const before = spread(canvas, fingers);
      fingers.set(event.pointerId, event);
      const after = spread(canvas, fingers);
      zoomBy(before.width / after.width, before.middle);
      panBy(before.middle - after.middle);
    },
    { capture: true },
  );
  for (const end of ["pointerup", "pointercancel"])
    canvas.addEventListener(end, (/** @type {PointerEvent} */ event) => fingers.delete(event.pointerId));
}

/** Distance and middle of two fingers, as shares of the width. @param {Element} canvas @param {Map<number, PointerEvent>} fingers */
function spread(canvas, fingers) {
  const [a, b] = [...fingers.values()].map((event) => pointIn(event, canvas)[0]);
  return { width: Math.max(0.01, Math.abs(a - b)), middle: (a + b) / 2 };
}

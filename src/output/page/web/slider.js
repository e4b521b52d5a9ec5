// The slider for the moment, as wide as the timeline, and the buttons above it.

import { byId } from "./dom.js";
import { bytesText, countText } from "./format.js";
import { momentOfX, xOfMoment } from "./raster.js";
import { showFailure } from "./result.js";
import { device, setAxis, setMode, setMoment, setZoom, view } from "./view.js";
/** @import { View } from "./view.js" */

export const SLIDER_STEPS = 4000;

export function drawSlider() {
  const slider = byId("slider");
  const share = xOfMoment(view.moment + 0.5);
  slider.value = String(Math.round(Math.max(0, Math.min(1, share)) * SLIDER_STEPS));
  slider.setAttribute(
    "aria-valuetext",
    `${device.momentText(view.moment)} of ${device.data.entries}, ${bytesText(device.totals.allocated[view.moment])} allocated`,
  );
  byId("outside").hidden = share >= 0 && share <= 1;
  for (const button of document.querySelectorAll("[data-mode]")) {
    const mode = /** @type {View["mode"]} */ (button.getAttribute("data-mode"));
    button.setAttribute("aria-pressed", String(mode === view.mode));
    const isTimelines = mode === "each" || mode === "segment";
    button.toggleAttribute("hidden", !device.groups[mode] || (isTimelines && !device.data.entries));
  }
  for (const button of document.querySelectorAll("[data-axis]"))
    button.setAttribute("aria-pressed", String(button.getAttribute("data-axis") === view.axis));
  byId("axis").hidden = !device.data.hasTime;
  for (const id of ["whole", "to-peak"]) byId(id).hidden = !device.data.entries;
  byId("to-failure").hidden = !device.data.header.failures.length;
  const whole = view.end - view.start > device.data.entries + 0.5;
  byId("zoom-note").hidden = !device.data.entries;
  byId("zoom-note").textContent = whole
    ? "the whole trace"
    : `entries ${countText(device.entryOf(Math.floor(view.start) + 1) ?? 0)} to ${countText(device.entryOf(Math.min(device.data.entries, Math.ceil(view.end))) ?? 0)}`;
}

export function wireSlider() {
  const slider = byId("slider");
  slider.addEventListener("input", () => setMoment(Math.floor(momentOfX(Number(slider.value) / SLIDER_STEPS)), false));
  for (const button of document.querySelectorAll("[data-mode]"))
    button.addEventListener("click", () => setMode(/** @type {any} */ (button.getAttribute("data-mode"))));
  for (const button of document.querySelectorAll("[data-axis]"))
    button.addEventListener("click", () => setAxis(/** @type {any} */ (button.getAttribute("data-axis"))));
  byId("whole").addEventListener("click", showWhole);
  byId("to-peak").addEventListener("click", () => setMoment(device.totals.peak));
  byId("to-failure").addEventListener("click", nextFailure);
  byId("outside").addEventListener("click", () => setMoment(view.moment));
}

export function showWhole() {
  setZoom(0, device.data.entries + 1);
}

/** Goes to the next failure; from the last to the first. */
export function nextFailure() {
  const { failures } = device.data.header;
  if (!failures.length) return;
  showFailure((failures.find((/** @type {any} */ failure) => failure.moment > view.moment) ?? failures[0]).index);
}

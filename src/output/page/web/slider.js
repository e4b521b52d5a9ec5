// The slider for the moment, as wide as the timeline, and the buttons above it.

import { byId, press, wireChoice } from "./dom.js";
import { bytesText } from "./format.js";
import { momentOfX, xOfMoment } from "./raster.js";
import { showFailure } from "./result.js";
import { device, setAxis, setMode, setMoment, setZoom, view } from "./view.js";
/** @import { View } from "./view.js" */

export const SLIDER_STEPS = 4000;

export function drawSlider() {
  const slider = byId("slider");
  const share = xOfMoment(view.moment + 0.5);
  slider.value = String(Math.round(Math.max(0, Math.min(1, share)) * SLIDER_STEPS));
  const allocated = `${bytesText(device.totals.allocated[view.moment])} allocated`;
  slider.setAttribute("aria-valuetext", `${device.momentText(view.moment)} of ${device.data.entries}, ${allocated}`);
  byId("outside").hidden = share >= 0 && share <= 1;
  press("mode", view.mode);
  for (const button of document.querySelectorAll("[data-mode]")) {
    const mode = /** @type {View["mode"]} */ (button.getAttribute("data-mode"));
    const isTimelines = mode === "each" || mode === "segment";
    button.toggleAttribute("hidden", !device.groups[mode] || (isTimelines && !device.data.entries));
  }
  press("axis", view.axis);
  byId("axis").hidden = !device.data.hasTime;
  for (const id of ["whole", "to-peak"]) byId(id).hidden = !device.data.entries;
  byId("to-failure").hidden = !device.data.header.failures.length;
  const whole = view.end - view.start > device.data.entries + 0.5;
  byId("zoom-note").hidden = !device.data.entries;
  const [from, to] = [Math.floor(view.start) + 1, Math.min(device.data.entries, Math.ceil(view.end))];
  byId("zoom-note").textContent = whole
    ? "the whole trace"
    : `entries ${device.entryText(from)} to ${device.entryText(to)}`;
}

export function wireSlider() {
  const slider = byId("slider");
  slider.addEventListener("input", () => setMoment(Math.floor(momentOfX(Number(slider.value) / SLIDER_STEPS)), false));
  wireChoice("mode", setMode);
  wireChoice("axis", setAxis);
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

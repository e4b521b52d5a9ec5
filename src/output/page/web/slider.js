// The moment as a slider as wide as the picture, and the buttons above it.

const SLIDER_STEPS = 4000;

function drawSlider() {
  const slider = byId("slider");
  const share = acrossZoom(view.m + 0.5);
  slider.value = String(Math.round(Math.max(0, Math.min(1, share)) * SLIDER_STEPS));
  slider.setAttribute(
    "aria-valuetext",
    `${device.momentText(view.m)} of ${device.data.entries}, ${bytesText(device.totals.allocated[view.m])} allocated`,
  );
  byId("outside").hidden = share >= 0 && share <= 1;
  for (const button of document.querySelectorAll("[data-mode]"))
    button.setAttribute("aria-pressed", String(button.getAttribute("data-mode") === view.mode));
  for (const button of document.querySelectorAll("[data-axis]"))
    button.setAttribute("aria-pressed", String(button.getAttribute("data-axis") === view.x));
  byId("axis").hidden = !device.data.hasTime;
  for (const id of ["whole", "to-peak"]) byId(id).hidden = !device.data.entries;
  byId("to-failure").hidden = !device.data.header.failures.length;
  const whole = view.b - view.a > device.data.entries + 0.5;
  byId("zoom-note").textContent = whole
    ? "the whole trace"
    : `entries ${countText(device.entryOf(Math.floor(view.a) + 1) ?? 0)} to ${countText(device.entryOf(Math.min(device.data.entries, Math.ceil(view.b))) ?? 0)}`;
}

function wireSlider() {
  const slider = byId("slider");
  slider.addEventListener("input", () => setMoment(Math.floor(fromAcross(Number(slider.value) / SLIDER_STEPS)), false));
  for (const button of document.querySelectorAll("[data-mode]"))
    button.addEventListener("click", () => setMode(/** @type {any} */ (button.getAttribute("data-mode"))));
  for (const button of document.querySelectorAll("[data-axis]"))
    button.addEventListener("click", () => setAxis(/** @type {any} */ (button.getAttribute("data-axis"))));
  byId("whole").addEventListener("click", showWhole);
  byId("to-peak").addEventListener("click", () => setMoment(device.totals.peak));
  byId("to-failure").addEventListener("click", nextFailure);
  byId("outside").addEventListener("click", () => setMoment(view.m));
}

function showWhole() {
  setZoom(0, device.data.entries + 1);
}

/** The failure after this moment; after the last the first. */
function nextFailure() {
  const { failures } = device.data.header;
  if (!failures.length) return;
  showFailure((failures.find((/** @type {any} */ one) => one.moment > view.m) ?? failures[0]).index);
}

// Printing: in light colours, with everything unfolded, and the canvases as pictures.

import { recolour } from "./colours.js";
import { make } from "./dom.js";
import { placeAnswer } from "./result.js";
import { fillTables } from "./tables.js";
import { readTheme } from "./theme.js";
import { device, drawStale, redrawAll } from "./view.js";

/** Draws everything in the colours of the theme. */
export function repaint() {
  readTheme();
  recolour();
  redrawAll();
}

/** Undoes what printing changed. @type {(() => void)[]} */
let afterPrint = [];

function beforePrint() {
  if (!device) return;
  restoreScreen();
  const root = document.documentElement;
  const was = root.dataset.theme;
  root.dataset.theme = "light";
  afterPrint.push(() => {
    if (was) root.dataset.theme = was;
    else delete root.dataset.theme;
  });
  placeAnswer(true);
  afterPrint.push(() => placeAnswer());
  repaint();
  drawStale();
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.setAttribute("open", "");
    afterPrint.push(() => details.removeAttribute("open"));
  }
  fillTables();
  for (const frame of document.querySelectorAll(".picture, .strips")) {
    const canvases = [...frame.querySelectorAll("canvas")].filter((canvas) => canvas.width && canvas.height);
    if (!canvases.length) continue;
    const label = canvases[0].getAttribute("aria-label") ?? "";
    const image = (/** @type {HTMLCanvasElement} */ canvas, /** @type {number} */ at) =>
      make("img", { class: "print", src: canvas.toDataURL(), alt: at ? "" : label });
    const images = canvases.map(image);
    frame.append(...images);
    afterPrint.push(() => images.forEach((image) => image.remove()));
  }
}

function restoreScreen() {
  for (const undo of afterPrint) undo();
  afterPrint = [];
}

export function wirePrint() {
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", () => {
    restoreScreen();
    repaint();
  });
}

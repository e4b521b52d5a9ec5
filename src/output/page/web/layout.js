// Puts the interactive part of the page, whose elements are in skeleton.html, below the summary.

import { drawDock, isNarrow, showPane } from "./dock.js";
import { byId, make } from "./dom.js";
import { pages, pagesList, pagesTitle } from "./pages.js";
import { SLIDER_STEPS } from "./slider.js";
import { device, redraw } from "./view.js";

export function buildPage() {
  const app = byId("app");
  app.append(byId("skeleton").content);
  document.body.prepend(skipLink());
  byId("pages-section").hidden = pages.length < 2;
  byId("pages-title").textContent = pagesTitle();
  if (pages.length > 1) byId("pages-section").append(...pagesList());
  byId("slider").max = SLIDER_STEPS;
  for (const details of app.querySelectorAll("section > details"))
    details.addEventListener("toggle", () => redraw("tables"));
  app.classList.add("ready");
}

/** The first stop of Tab. The address has the view, so that the link moves the focus itself. */
function skipLink() {
  const skip = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isNarrow()) showPane("result");
    byId("dock").classList.toggle("open", !isNarrow());
    drawDock();
    byId("answer").focus();
  };
  return make("a", { class: "skip", href: "#answer", onclick: skip }, "Skip to the result");
}

/** Puts the view that shows the verdict below the controls. The legend of the map's blocks is the timeline's. */
export function arrangeViews() {
  const order = ["time", "map"];
  if (device.data.header.proof === "map") order.reverse();
  byId("kept-section").after(...order.map((id) => byId(`${id}-section`)));
  // Without a trace there is only what the snapshot holds.
  byId("time-section").hidden = !device.data.entries;
  for (const id of ["back", "forward"]) byId(id).hidden = !device.data.entries;
}

// The dock: the figures of the moment above panes, of which one is shown. It stays in sight while the page scrolls; in a
// narrow window it lies at the lower edge, folded until a pane is chosen.

import { byId } from "./dom.js";
import { device, redraw, setMoment, view } from "./view.js";

/** The panes, in the order of their tabs. */
const PANES = ["result", "entries", "selected", "search", "compare"];

/** Whether a pane can be shown: entries need a trace. @param {string | undefined} id */
export function hasPane(id) {
  if (id === "entries") return device?.data.entries > 0;
  return PANES.includes(id ?? "");
}

/** Whether the dock lies at the lower edge. */
export function isNarrow() {
  return matchMedia("(max-width: 1000px)").matches;
}

export function wireDock() {
  byId("back").addEventListener("click", () => setMoment(view.moment - 1));
  byId("forward").addEventListener("click", () => setMoment(view.moment + 1));
  addEventListener("scroll", () => redraw("dock"), { passive: true });
  const tabs = /** @type {any} */ (document.querySelector(".tabs"));
  for (const id of PANES) byId(`tab-${id}`).addEventListener("click", () => turnTo(id));
  tabs.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const panes = PANES.filter(hasPane);
    const id = panes[(panes.indexOf(view.pane) + by + panes.length) % panes.length];
    showPane(id);
    byId(`tab-${id}`).focus();
  });
}

/** A click on a tab: in a narrow window, one on the open pane folds the dock. @param {string} id */
function turnTo(id) {
  const fold = isNarrow() && view.pane === id && byId("dock").classList.contains("open");
  showPane(id);
  byId("dock").classList.toggle("open", !fold);
}

/** Shows a pane and opens the dock. @param {string} id */
export function showPane(id) {
  if (!hasPane(id)) return;
  view.pane = id;
  byId("dock").classList.add("open");
  redraw("dock", "entries", "compare", "found", "hash");
}

export function drawDock() {
  for (const id of PANES) {
    const isShown = id === view.pane;
    const tab = byId(`tab-${id}`);
    tab.setAttribute("aria-selected", String(isShown));
    tab.hidden = !hasPane(id);
    tab.tabIndex = isShown ? 0 : -1;
    byId(`pane-${id}`).classList.toggle("shown", isShown);
  }
  // As high as the window below the summary, or all of it once that is scrolled away.
  const above = Math.round(byId("work").getBoundingClientRect().top);
  byId("dock").style.setProperty("--above", `${Math.max(0, Math.min(above, 320))}px`);
}

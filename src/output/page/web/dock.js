// The dock: the figures of the moment above panes, of which one is shown. It stays in sight while the page scrolls; in a
// narrow window it lies at the lower edge, folded until a pane is chosen.

/** The panes, in the order of their tabs: id and title. @type {[string, string][]} */
const PANES = [
  ["result", "Result"],
  ["entries", "Entries"],
  ["selected", "Selected"],
  ["search", "Search"],
  ["compare", "Compare"],
  ["replay", "Replay"],
];

/** Whether a pane can be shown: replays need an analyzer, entries a trace. @param {string | undefined} id */
function hasPane(id) {
  if (id === "replay") return canReplay();
  if (id === "entries") return device?.data.entries > 0;
  return PANES.some(([pane]) => pane === id);
}

/** @param {Record<string, Node[]>} contents the elements of each pane */
function makeDock(contents) {
  const tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "details" });
  const dock = make(
    "aside",
    { id: "dock", "aria-label": "details" },
    make(
      "div",
      { id: "now" },
      make("b", { id: "page-title" }),
      make(
        "div",
        { class: "bar" },
        make("button", { id: "back", "aria-label": "one entry back" }, "◀"),
        make("span", { class: "muted", id: "when" }),
        make("span", { class: "space" }),
        make("button", { id: "forward", "aria-label": "one entry forward" }, "▶"),
      ),
      make("div", { class: "tiles", id: "tiles", role: "group", "aria-label": "figures", tabindex: "0" }),
    ),
    tabs,
  );
  for (const [id, title] of PANES) {
    const tab = { role: "tab", id: `tab-${id}`, "aria-controls": `pane-${id}`, "data-pane": id, hidden: !hasPane(id) };
    tabs.append(make("button", tab, title));
    const attributes = { role: "tabpanel", class: "pane", id: `pane-${id}`, "aria-labelledby": `tab-${id}` };
    dock.append(make("div", { ...attributes, tabindex: "0" }, ...contents[id]));
  }
  return dock;
}

/** Whether the dock lies at the lower edge. */
function isNarrow() {
  return matchMedia("(max-width: 900px)").matches;
}

function wireDock() {
  byId("back").addEventListener("click", () => setMoment(view.moment - 1));
  byId("forward").addEventListener("click", () => setMoment(view.moment + 1));
  addEventListener("scroll", () => redraw("dock"), { passive: true });
  const tabs = /** @type {any} */ (document.querySelector(".tabs"));
  for (const [id] of PANES) byId(`tab-${id}`).addEventListener("click", () => turnTo(id));
  tabs.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const panes = PANES.filter(([id]) => hasPane(id));
    const at = panes.findIndex(([id]) => id === view.pane);
    const [id] = panes[(at + by + panes.length) % panes.length];
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
function showPane(id) {
  if (!hasPane(id)) return;
  view.pane = id;
  byId("dock").classList.add("open");
  redraw("dock", "entries", "compare", "found", "replay", "hash");
}

function drawDock() {
  for (const [id] of PANES) {
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

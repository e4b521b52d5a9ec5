// Builds the interactive part of the page, below the summary.

/** @param {string} id @param {string} title @param {...(Node | string)} children */
function section(id, title, ...children) {
  return make(
    "section",
    { id: `${id}-section`, "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, title),
    ...children,
  );
}

/** A canvas in a frame. @param {string} id @param {string} label the text alternative @param {...Node} over */
function picture(id, label, ...over) {
  return make(
    "div",
    { class: "picture", id: `${id}-frame` },
    make("canvas", { id, tabindex: "0", role: "img", "aria-label": label }),
    ...over,
  );
}

/** A collapsed table with the numbers of a picture. @param {string} id @param {string} title */
function folded(id, title) {
  return make(
    "details",
    { id, ontoggle: () => redraw("tables") },
    make("summary", {}, title),
    make("div", { class: "scroll" }),
  );
}

/** @param {string} kind @param {string} value @param {string} text */
function choice(kind, value, text) {
  return make("button", { [`data-${kind}`]: value, "aria-pressed": "false" }, text);
}

/** @param {string} id @param {string} text @param {string} [key] */
function action(id, text, key) {
  const button = make("button", { id }, text);
  if (key) button.append(" ", make("kbd", {}, key));
  return button;
}

/** What the timeline stacks. @type {[View["mode"], string][]} */
const MODES = [
  ["category", "category"],
  ["line", "line"],
  ["variable", "variable"],
  ["each", "each allocation"],
  ["segment", "each segment"],
];

function buildPage() {
  const app = byId("app");
  const search = make(
    "span",
    { class: "bar" },
    make("input", {
      type: "search",
      id: "query",
      placeholder: "search  /",
      "aria-label": "search stacks and variables",
      spellcheck: "false",
    }),
    make("span", { id: "highlight-note", class: "muted whole", role: "status" }),
    action("highlight-peak", "its peak"),
    action("highlight-clear", "clear"),
  );
  const tools = make(
    "div",
    { class: "bar tools" },
    make(
      "span",
      { role: "group", class: "group", "aria-label": "stacked by" },
      ...MODES.map(([mode, text]) => choice("mode", mode, text)),
    ),
    make(
      "span",
      { role: "group", class: "group", id: "axis", "aria-label": "axis" },
      choice("axis", "entry", "entries"),
      choice("axis", "time", "seconds"),
    ),
    action("whole", "whole trace", "0"),
    action("to-peak", "peak", "p"),
    action("to-failure", "failure", "o"),
    search,
  );
  const slider = make("input", {
    type: "range",
    id: "slider",
    min: "0",
    max: SLIDER_STEPS,
    step: "1",
    "aria-label": "moment, across the zoom",
  });
  const history = make(
    "div",
    { id: "history" },
    picture("overview", "the whole trace; drag to choose a range, arrow keys move it"),
    picture(
      "timeline",
      "allocated memory over time, stacked; the same in numbers below",
      make("canvas", { id: "overlay", "aria-hidden": "true" }),
    ),
    make("div", { class: "moment" }, slider),
    make("div", { class: "strips", id: "bands-frame" }, make("canvas", { id: "bands", "aria-hidden": "true" })),
    timelineNotes(),
  );
  const views = make(
    "div",
    { id: "views" },
    make("div", { id: "controls" }, tools, make("div", { id: "legend", class: "bar legend" })),
    section("kept", "Kept after every step", make("div", { id: "kept", class: "scroll" })),
    section("time", "Memory over time", history, folded("timeline-table", "The timeline in numbers")),
    section(
      "map",
      "Device memory at this moment",
      make("p", { class: "muted", id: "map-note" }),
      picture("map", "segments by address, with the blocks in them; the same in numbers below"),
      mapKey(),
      folded("map-table", "The map in numbers"),
    ),
    section(
      "flame",
      "Who holds it at this moment",
      make(
        "p",
        { class: "muted" },
        "By stack, outermost frame on top. PyTorch's own frames are folded and pale; the interpreter's are left out. Click to zoom.",
      ),
      picture("flame", "flame graph of allocated memory by stack; the same in numbers below"),
      folded("stack-table", "The flame graph in numbers"),
      make("div", { id: "lines", class: "scroll" }),
    ),
  );
  const panes = {
    result: resultPane(),
    entries: [make("div", { id: "entry-list" }), make("div", { id: "entry" })],
    selected: [make("div", { id: "selection", "aria-live": "polite" })],
    search: foundPane(),
    compare: comparePane(),
    replay: replayPane(),
  };
  app.append(
    make("p", { id: "problem", class: "bad", hidden: true }),
    ...(pages.length > 1 ? [section("pages", pagesTitle(), ...pagesList())] : []),
    make("div", { id: "work" }, views, makeDock(panes)),
    keysDialog(),
    make("div", { id: "announcer", class: "offstage", role: "status" }),
    make("div", { id: "tip", role: "tooltip", hidden: true }),
  );
  app.classList.add("ready");
}

/** Puts the view that shows the verdict below the controls. The legend of the map's blocks is the timeline's. */
function arrangeViews() {
  const order = ["time", "map"];
  if (device.data.header.proof === "map") order.reverse();
  byId("kept-section").after(...order.map((id) => byId(`${id}-section`)));
  // Without a trace there is only what the snapshot holds.
  byId("time-section").hidden = !device.data.entries;
  for (const id of ["back", "forward"]) byId(id).hidden = !device.data.entries;
}

function timelineNotes() {
  return make(
    "p",
    { class: "muted bar notes" },
    make("span", { id: "zoom-note" }),
    make(
      "span",
      {},
      "Each column of pixels shows the moment with most allocated memory in its range. The grey line is reserved memory.",
    ),
    make("span", { id: "marks-note" }, "▾ red: memory freed for a request; grey: cache emptied, or a snapshot."),
    make("span", { id: "undrawn" }),
    make("button", { id: "outside", hidden: true }, "the moment is outside the zoom: go there"),
  );
}

function mapKey() {
  /** @param {string} name @param {string} text */
  const key = (name, text) => make("span", { class: "key" }, make("i", { class: `swatch ${name}` }), text);
  return make(
    "p",
    { class: "bar" },
    key("stranded", "free, stranded beside live blocks"),
    key("releasable", "free, releasable by empty_cache()"),
    key("pending", "freed, waiting for another stream"),
    make("span", { class: "muted" }, "allocated: colours of the legend"),
  );
}

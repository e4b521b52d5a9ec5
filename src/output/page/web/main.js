// Starts the page: reads what stands in it, builds the views, shows the first page, or the one that the address asks for.

/** Devices that were opened, by page. @type {Map<number, Promise<Device>>} */
const opened = new Map();
/** @type {any} */
let analysis = null;

/** @param {string} id @returns {any} */
function jsonIn(id) {
  return JSON.parse(byId(id)?.textContent || "null");
}

/** @param {number} index @returns {Promise<Device>} */
function openPage(index) {
  let found = opened.get(index);
  if (!found) {
    const page = pages[index];
    const data = document.querySelector(`script.data[data-page="${index}"]`);
    const told = analysis?.snapshots?.[page.snapshot]?.devices?.find(
      (/** @type {any} */ one) => one.device === page.device,
    );
    found = unpack(data?.textContent || "").then((packed) => new Device(packed, page, told));
    opened.set(index, found);
  }
  return found;
}

/** Shows a page as it is first looked at, or as wished. @param {number} index @param {Partial<View>} [wish] */
async function showPage(index, wish = {}) {
  device = await openPage(index);
  // A few stay decoded: others are read again.
  while (opened.size > 4) opened.delete(/** @type {number} */ ([...opened.keys()].find((key) => key !== index)));
  const all = device.data.entries + 1;
  failureIndex = -1;
  Object.assign(view, {
    page: index,
    m: device.firstMoment(),
    a: 0,
    b: all,
    mode: device.firstMode(),
    x: view.x,
    sel: -1,
    q: "",
    root: 0,
  });
  if (!device.data.hasTime) view.x = "entry";
  byId("page-title").textContent = device.page.title;
  const { undrawn } = device.data.header;
  byId("undrawn").textContent = undrawn
    ? `${countText(undrawn.allocations)} of the smallest and shortest allocations are left out to bound the size of this page, and hatched: at most ${bytesText(undrawn.bytes_at_most)} at a moment.`
    : "";
  byId("mark-note").hidden = !device.data.header.marks?.length;
  byId("course").hidden = !device.data.entries;
  byId("time-title").textContent = device.data.entries ? "Memory over time" : "Memory at the snapshot";
  byId("bands-frame").style.height = `${bandsHeight()}px`;
  show(wish);
}

/** Sets the state, as the address does. @param {Partial<View>} wish */
function show(wish) {
  if (wish.mode) view.mode = wish.mode;
  if (wish.x) view.x = device.data.hasTime ? wish.x : "entry";
  if (wish.a !== undefined && wish.b !== undefined) setZoom(wish.a, wish.b);
  if (wish.m !== undefined) setMoment(wish.m, false);
  if (wish.sel !== undefined) select(wish.sel);
  if (wish.q !== undefined) view.q = wish.q;
  moment = momentAt(device, view.m);
  lit = litBy(device, view.q);
  recolour();
  redrawAll();
}

/** What `analyze` prints below its summary is folded: the views above show it. */
function foldRest() {
  const rest = make("details", { class: "rest" }, make("summary", {}, "Everything that the analysis says, in words"));
  const app = byId("app");
  const tried = document.querySelectorAll("#first > section.whatif");
  while (app.nextSibling) rest.append(app.nextSibling);
  app.after(...tried, rest);
}

/** What has been drawn when two frames have passed. */
function drawn() {
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}

async function start() {
  analysis = jsonIn("analysis");
  pages = jsonIn("pages") || [];
  if (!pages.length) return;
  readTheme();
  buildPage();
  foldRest();
  Object.assign(pictures, {
    search: drawSearch,
    failure: drawFailurePanel,
    figures: drawFigures,
    overview: drawOverview,
    timeline: drawTimeline,
    overlay: drawOverlay,
    bands: drawBands,
    slider: drawSlider,
    map: drawMap,
    flame: drawFlame,
    selection: drawSelection,
    tables: drawTables,
    pages: drawPages,
    hash: drawHash,
  });
  for (const wire of [wireTimeline, wireBands, wireOverview, wireSlider, wireMap, wireFlame, wireSearch, wireKeys])
    wire();
  const repaint = () => {
    readTheme();
    recolour();
    redrawAll();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  byId("theme").addEventListener("click", repaint);
  addEventListener("resize", redrawAll);
  const follow = async () => {
    if (location.hash === ownHash) return;
    const wish = wishOf(location.hash);
    const page = Math.max(0, Math.min(pages.length - 1, wish.page ?? view.page));
    if (page !== view.page || !device) await showPage(page, wish);
    else show({ q: "", sel: -1, ...wish });
  };
  addEventListener("hashchange", follow);
  ownHash = "?";
  await follow();
  await drawn();
  note("first", performance.now());
}

/** @param {unknown} error */
function tellOf(error) {
  const problem = byId("problem");
  const text = `The interactive part of this page could not be shown: ${error instanceof Error ? error.message : String(error)}`;
  if (problem) {
    problem.textContent = text;
    problem.hidden = false;
  }
  console.error(error);
}

const ready = start();
ready.catch(tellOf);

/** For tests and scripts. */
/** @type {any} */ (window).oomscope = {
  ready,
  timings,
  /** The figures of a moment, and the ten lines that hold most. @param {number} m */
  state(m) {
    const at = momentAt(device, Math.max(0, Math.min(device.data.entries, m)));
    moment = momentAt(device, view.m);
    return { ...figuresOf(device, at), top_lines: topLines(device, at, 10) };
  },
  /** What is looked at. */
  view: () => ({ ...view }),
  /** @param {Partial<View>} wish */
  async show(wish) {
    if (wish.page !== undefined && wish.page !== view.page) await showPage(wish.page, wish);
    else show(wish);
    await drawn();
  },
};

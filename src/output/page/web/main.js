// Starts the page: reads its data, builds the views, and shows the first page or the one in the address.

import { drawBoth, wireBoth } from "./both.js";
import { dimPixels, groupPixels } from "./colours.js";
import { compareMoments, comparedView, drawCompare, setFrom, wireCompare } from "./compare.js";
import { wireCursors } from "./cursor.js";
import { unpack } from "./decode.js";
import { Device } from "./device.js";
import { drawDock, hasPane, wireDock } from "./dock.js";
import { byId } from "./dom.js";
import { drawEntries, traceEntry, wireEntries } from "./entries.js";
import { tableCsv, viewCanvas, viewSvgText, wireExport } from "./export.js";
import { drawFigures } from "./figures.js";
import { wireFilter } from "./filter.js";
import { drawFlame, wireFlame } from "./flame.js";
import { bytesText, countText } from "./format.js";
import { drawFound, wireFound } from "./found.js";
import { wireFrame } from "./frame.js";
import { drawHash, followHash, parseHash } from "./hash.js";
import { drawKept } from "./kept.js";
import { wireKeys } from "./keys.js";
import { arrangeViews, buildPage } from "./layout.js";
import { drawMap, wireMap } from "./map.js";
import { figuresOf, momentAt, topLines } from "./moment.js";
import { bandsHeight, drawBands, drawOverlay, marksLegend, wireBands } from "./overlay.js";
import { drawOverview, wireOverview } from "./overview.js";
import { drawPages, pages, setPages } from "./pages.js";
import { wirePinch } from "./pinch.js";
import { repaint, wirePrint } from "./print.js";
import { drawResult, forgetResult, placeAnswer } from "./result.js";
import { drawSearch, wireSearch } from "./search.js";
import { drawSelection } from "./selection.js";
import { drawSlider, wireSlider } from "./slider.js";
import { startView } from "./start_view.js";
import { arrangeSummary } from "./summary.js";
import { drawTables } from "./tables.js";
import { readTheme, textContrast } from "./theme.js";
import { drawTimeline, wireTimeline } from "./timeline.js";
import { device, pictures, recordTiming, redrawAll, timings, updateHighlight, updateMoment, view } from "./view.js";
import { select, selectSegment, setDevice, setMoment, setZoom } from "./view.js";
/** @import { View } from "./view.js" */

/** Number of the latest request for a page: an earlier one that is ready later is not shown. */
let latestRequest = 0;
/** Decoded devices, by page. @type {Map<number, Promise<Device>>} */
const openDevices = new Map();
/** @type {any} */
let analysis = null;

/** @param {string} id @returns {any} */
export function parseJsonElement(id) {
  return JSON.parse(byId(id)?.textContent || "null");
}

/** @param {number} index @returns {Promise<Device>} */
export function openDevice(index) {
  let found = openDevices.get(index);
  if (!found) {
    const page = pages[index];
    const data = document.querySelector(`script.data[data-page="${index}"]`);
    const devices = analysis?.snapshots?.[page.snapshot]?.devices;
    const report = devices?.find((/** @type {any} */ one) => one.device === page.device);
    found = unpack(data?.textContent || "").then((packed) => new Device(packed, page, report));
    openDevices.set(index, found);
  }
  return found;
}

/** Shows a page as it opens, with `changes` applied. @param {number} index @param {Partial<View>} [changes] */
export async function showPage(index, changes = {}) {
  latestRequest += 1;
  const request = latestRequest;
  const opened = await openDevice(index);
  if (request !== latestRequest) return;
  setDevice(opened);
  // Keep a few devices decoded.
  while (openDevices.size > 4)
    openDevices.delete(/** @type {number} */ ([...openDevices.keys()].find((key) => key !== index)));
  forgetResult();
  view.page = index;
  const { title } = device.page;
  byId("page-title").textContent = pages.length > 1 ? title : title.replace(/, device \d+$/, "");
  byId("page-title").title = analysis?.snapshots?.[device.page.snapshot]?.path ?? "";
  const { undrawn } = device.data.header;
  byId("undrawn").textContent = undrawn
    ? `${countText(undrawn.allocations)} of the smallest and shortest allocations are left out to limit the size of this page. They are hatched: at most ${bytesText(undrawn.bytes_at_most)} at a moment.`
    : "";
  byId("marks-note").replaceChildren(...marksLegend());
  arrangeViews();
  byId("bands-frame").style.height = `${bandsHeight()}px`;
  show(startView(device, index, changes));
}

/** Changes the state. @param {Partial<View>} changes */
function show(changes) {
  if (changes.mode) view.mode = device.groups[changes.mode] ? changes.mode : device.firstMode();
  if (changes.axis) view.axis = device.data.hasTime ? changes.axis : "entry";
  if (changes.start !== undefined && changes.end !== undefined) setZoom(changes.start, changes.end);
  if (changes.moment !== undefined) setMoment(changes.moment, false);
  if (changes.selected !== undefined) select(changes.selected);
  if (changes.segment !== undefined) selectSegment(changes.segment);
  for (const name of /** @type {const} */ (["root", "callers", "query", "filter", "only"]))
    if (changes[name] !== undefined) Object.assign(view, { [name]: changes[name] });
  if (changes.from !== undefined) setFrom(changes.from, changes.fromPage ?? view.page);
  if (changes.pane && hasPane(changes.pane)) view.pane = changes.pane;
  updateMoment();
  updateHighlight();
}

/** Resolves after two frames, when everything has been drawn. */
function nextFrame() {
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}

async function start() {
  analysis = parseJsonElement("analysis");
  setPages(parseJsonElement("pages") || []);
  if (!pages.length) return;
  readTheme();
  buildPage();
  arrangeSummary();
  Object.assign(pictures, {
    search: drawSearch,
    result: drawResult,
    figures: drawFigures,
    dock: drawDock,
    entries: drawEntries,
    compare: drawCompare,
    both: drawBoth,
    found: drawFound,
    kept: drawKept,
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
  const follow = async () => {
    if (!followHash()) return;
    // A page that the viewer saved has its view after the script.
    const asked = location.hash || parseJsonElement("shown-view");
    const changes = asked ? parseHash(asked) : ((await comparedView()) ?? {});
    const page = Math.max(0, Math.min(pages.length - 1, changes.page ?? 0));
    if (page !== view.page || !device) await showPage(page, changes);
    else show(startView(device, page, changes));
  };
  addEventListener("hashchange", follow);
  // There is nothing to act on until a device is decoded.
  byId("app").inert = true;
  if (document.readyState === "loading") await new Promise((done) => addEventListener("DOMContentLoaded", done));
  await follow();
  byId("app").inert = false;
  // The listeners of pinching come before those of the timeline.
  const charts = [wirePinch, wireTimeline, wireBands, wireOverview, wireSlider, wireMap, wireFlame, wireBoth];
  const panes = [wireDock, wireEntries, wireCompare, wireFound, wireFilter, wireFrame];
  for (const wire of [...charts, ...panes, wireSearch, wireKeys, wireCursors, wireExport, wirePrint]) wire();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  byId("theme").addEventListener("click", repaint);
  addEventListener("resize", () => {
    placeAnswer();
    redrawAll();
  });
  await nextFrame();
  recordTiming("first", performance.now());
}

/** @param {unknown} error */
function showError(error) {
  const problem = byId("problem");
  const text = `The interactive part of this page could not be shown: ${error instanceof Error ? error.message : String(error)}`;
  if (problem) {
    problem.textContent = text;
    problem.hidden = false;
  }
  console.error(error);
}

const ready = start();
ready.catch(showError);

/** For tests and scripts. */
/** @type {any} */ (window).oomscope = {
  ready,
  timings,
  /** The figures of a moment, and the ten lines with most memory. @param {number} m */
  state(m) {
    const at = momentAt(device, Math.max(0, Math.min(device.data.entries, m)));
    updateMoment();
    return { ...figuresOf(device, at), top_lines: topLines(device, at, 10) };
  },
  /** An entry of the trace as the page lists it. @param {number} m the moment after it */
  entry(m) {
    const { action, bytes, addr, stream, node } = traceEntry(m);
    const frames = device.stacks.framesOf(node).map((frame) => device.stacks.frameText(frame));
    return { action, bytes, address: addr === null ? null : device.data.address(addr), stream, frames };
  },
  /** The view as pictures, and a table as CSV. */
  svg: viewSvgText,
  png: async () => (await viewCanvas()).toDataURL(),
  csv: tableCsv,
  /** What came, went and stayed between two moments. @param {number} from @param {number} to @param {string} by */
  compare: (from, to, by) => compareMoments(device, from, device, to, by),
  /** The least contrast of text with the bars that it is drawn on. */
  contrast: () => Math.min(...[...groupPixels, ...dimPixels].map(textContrast)),
  /** The state. */
  view: () => ({ ...view }),
  /** @param {Partial<View>} changes */
  async show(changes) {
    if (changes.page !== undefined && changes.page !== view.page) await showPage(changes.page, changes);
    else show(changes);
    await nextFrame();
  },
};

// The panel of replays: the conditions, the outcome of each change at once, and what `oomscope whatif` says of them.

import { byId, make } from "../dom.js";
import { tile } from "../figures.js";
import { bytesText, countText, percentText } from "../format.js";
import { analysis } from "../main.js";
import { pages } from "../pages.js";
import { CAPACITY_STEPS, capacityPlace, capacityRange } from "./capacity.js";
import { FIND_CHANGES, fillReplayControls, wireReplay } from "./controls.js";
import { drawCurves } from "./curves.js";
import { awaitViewer, canReplay, openReplay } from "./port.js";
import { replayedPage } from "./shown_run.js";
import { device, recordTiming, redraw, view } from "../view.js";

/** Milliseconds without a change after which the text of `oomscope whatif` is brought up to date. */
const TEXT_DELAY = 600;

/** No device is replayed. */
const NO_REPLAY = {
  /** Its row in the list of pages, or -1. */
  page: -1,
  /** @type {any} */
  port: null,
  /** The conditions that it offers. @type {any} */
  offer: null,
  /** The outcome that is shown. @type {any} */
  run: null,
  isReplaying: false,
  /** Whether the conditions changed during a replay. */
  isStale: false,
  textTimer: 0,
  /** The conditions of the shown text. */
  textOf: "",
};
/** The device that the panel replays. */
export const replay = { ...NO_REPLAY };
/** The page whose recording could not be opened, or -1: it is not tried again by itself. */
let refusedPage = -1;

/** The conditions as the controls have them. */
export function replayConditions() {
  return {
    capacity: byId("replay-capacity").value.trim(),
    options: byId("replay-options").value.trim(),
    release: byId("replay-release").value,
    change: byId("replay-change").value === FIND_CHANGES ? "" : byId("replay-change").value,
  };
}

/** The conditions in a few words. @param {ReturnType<typeof replayConditions>} conditions */
export function conditionsText({ capacity, options, release, change }) {
  const chosen = byId("replay-change").selectedOptions[0]?.textContent ?? "";
  const parts = [options, release && `PyTorch ${release}`, change && chosen, capacity && `on ${capacity}`];
  return parts.filter(Boolean).join(", ") || "as recorded";
}

/** The command with the same figures. @param {ReturnType<typeof replayConditions>} conditions */
function replayCommand({ capacity, options, release, change }) {
  const page = pages[replay.page];
  const { path } = analysis.snapshots[page.snapshot];
  const command = change ? "whatif --program" : options && !release ? "whatif" : "replay";
  const parts = [`oomscope ${command}`];
  if (options) parts.push(`--set '${options}'`);
  if (release) parts.push(`--torch-version ${release}`);
  if (capacity) parts.push(`--capacity '${capacity}'`);
  return [...parts, `--device ${page.device}`, `'${path}'`].join(" ");
}

/** @param {string} text @param {boolean} [isProblem] */
export function setReplayStatus(text, isProblem = false) {
  byId("replay-status").textContent = text;
  byId("replay-status").classList.toggle("bad", isProblem);
}

/** Starts the analyzer on the device that the page shows. */
export async function openReplayPanel() {
  closeReplayPanel();
  const index = view.page;
  replay.page = index;
  byId("replay-open").hidden = true;
  setReplayStatus("Reading the recording ...");
  try {
    const port = await openReplay(pages[index]);
    if (replay.page !== index) return port.close();
    replay.port = port;
    port.onprogress = (/** @type {number} */ part) => setReplayStatus(`Reading the recording: ${percentText(part, 1)}`);
    const answer = await port.ask({ request: "recorded" });
    if (replay.port !== port) return;
    if (answer.error) throw new Error(answer.error);
    replay.offer = answer.recorded;
    replay.run = replay.offer.recorded;
    byId("replay-panel").hidden = false;
    fillReplayControls(replay.offer);
    setReplayStatus(replay.offer.exact ? "" : "The model diverges from this recording: every replay is an estimate.");
    drawReplayOutcome(replay.offer.outcome);
  } catch (error) {
    closeReplayPanel();
    refusedPage = index;
    setReplayStatus(`Nothing can be replayed: ${error instanceof Error ? error.message : error}`, true);
  }
}

function closeReplayPanel() {
  replay.port?.close();
  clearTimeout(replay.textTimer);
  Object.assign(replay, NO_REPLAY);
  byId("replay-panel").hidden = true;
  byId("replay-open").hidden = false;
  setReplayStatus("");
}

/** Replays under the conditions of the controls; while a replay runs, only the newest conditions wait. */
export async function replayNow() {
  replay.isStale = true;
  if (replay.isReplaying) return;
  replay.isReplaying = true;
  const { port } = replay;
  while (replay.isStale) {
    replay.isStale = false;
    const start = performance.now();
    const answer = await port.ask({ request: "replay", conditions: replayConditions() });
    if (replay.port !== port) return;
    recordTiming("replay", performance.now() - start);
    setReplayStatus(answer.error ?? "", true);
    if (answer.error) continue;
    replay.run = answer.replay;
    drawReplayOutcome(answer.replay.outcome);
  }
  replay.isReplaying = false;
  updateReplayText();
}

/** Brings the full text up to date, once nothing has changed for a moment. */
export function updateReplayText() {
  clearTimeout(replay.textTimer);
  const conditions = replayConditions();
  byId("replay-command").textContent = replayCommand(conditions);
  const { port } = replay;
  const key = JSON.stringify(conditions);
  if (!byId("replay-text").open || key === replay.textOf) return;
  replay.textTimer = window.setTimeout(async () => {
    const request = conditions.change ? "changes" : "describe";
    const answer = await port.ask({ request, conditions });
    if (replay.port !== port || JSON.stringify(replayConditions()) !== key) return;
    replay.textOf = key;
    // The analyzer escapes every text; the policy of the page runs no script in it.
    byId("replay-document").innerHTML = answer.describe ?? answer.changes?.html ?? "";
    if (answer.error) byId("replay-document").textContent = answer.error;
  }, TEXT_DELAY);
}

/** @param {string} outcome in a sentence */
function drawReplayOutcome(outcome) {
  const { offer, run } = replay;
  const { recorded } = offer;
  const sentence = byId("replay-outcome");
  sentence.textContent = outcome;
  sentence.className = run.ooms ? "bad" : run.then.outcome === "goes-on" ? "good" : "";
  const warnings = run.warnings.map((/** @type {any} */ warning) => make("li", {}, warning.message));
  byId("replay-warnings").replaceChildren(...warnings);
  /** @param {number} now @param {number} before @param {(value: number) => string} text */
  const change = (now, before, text) => (now === before ? "as recorded" : `recorded ${text(before)}`);
  /** @param {string} name @param {string} key @param {(value: number) => string} text */
  const compared = (name, key, text) =>
    run[key] === null ? [] : [tile(name, text(run[key]), change(run[key], recorded[key], text))];
  byId("replay-tiles").replaceChildren(
    ...compared("peak reserved", "peak_reserved_bytes", bytesText),
    ...compared("peak allocated", "peak_allocated_bytes", bytesText),
    ...compared("failed requests", "ooms", countText),
    ...compared("retries", "retries", countText),
    ...compared("device allocations", "device_allocs", countText),
    tile(
      "capacity",
      run.capacity_bytes ? bytesText(run.capacity_bytes) : "unknown",
      run.limit_bytes ? `the process may reserve ${bytesText(run.limit_bytes)}` : "within reach of PyTorch",
    ),
    ...(run.change ? [tile("how sure", run.change.sure, "that the program makes these requests")] : []),
  );
  drawCurves(byId("replay-curves"), recorded, run, offer.entries);
  const capacity = run.capacity_bytes ?? recorded.peak_reserved_bytes;
  byId("replay-slider").value = String(Math.round(capacityPlace(capacity, capacityRange(offer)) * CAPACITY_STEPS));
  byId("replay-slider").setAttribute("aria-valuetext", bytesText(capacity));
}

/** The panel belongs to one recorded device, which is opened once the pane is shown. */
export function drawReplay() {
  if (!canReplay()) return;
  const isReplayed = view.page === replayedPage;
  if (replay.page >= 0 && view.page !== replay.page && !isReplayed) closeReplayPanel();
  byId("replay-show").textContent = isReplayed ? "back to the recording" : "show this run in the page";
  const hasEntries = device.data.entries > 0;
  byId("replay-open").disabled = !hasEntries;
  if (view.pane !== "replay" || replay.page >= 0 || isReplayed) return;
  if (!hasEntries) setReplayStatus("No history was recorded: there is nothing to replay.");
  else if (refusedPage !== view.page) openReplayPanel();
}

/** Adds the pane where the page can replay. */
export function startReplay() {
  const add = () => {
    byId("tab-replay").hidden = false;
    wireReplay();
    redraw("replay");
  };
  if (canReplay()) add();
  else awaitViewer(add);
}

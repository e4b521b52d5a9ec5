// The controls of the panel of replays.

import { byId, make, pointIn } from "../dom.js";
import { bytesText, countText } from "../format.js";
import { showPage } from "../main.js";
import { pages } from "../pages.js";
import { capacityMarks, capacityRange, capacityText } from "./capacity.js";
import { CURVES_HEIGHT, CURVES_WIDTH, entryAt, valueAt } from "./curves.js";
import { conditionsText, replay, replayConditions } from "./panel.js";
import { openReplayPanel, replayNow, setReplayStatus, updateReplayText } from "./panel.js";
import { replayedPage, showRun } from "./shown_run.js";
import { view } from "../view.js";

/** The choice that has the analyzer find the changes to the program. */
export const FIND_CHANGES = "find";

/** @param {any} select @param {[string, string][]} choices value and text */
function fillSelect(select, choices) {
  select.replaceChildren(...choices.map(([value, text]) => make("option", { value }, text)));
}

/** @param {any} offer */
export function fillReplayControls(offer) {
  const gpus = Object.entries(offer.gpus).sort((one, other) => one[1] - other[1]);
  fillSelect(byId("replay-gpu"), [
    ["", ""],
    ...gpus.map(([name, bytes]) => /** @type {[string, string]} */ ([name, `${name}, ${bytesText(bytes)}`])),
  ]);
  const recorded = offer.settings_string || "defaults";
  fillSelect(byId("replay-preset"), [
    ["", offer.settings_string === null ? "as recorded" : `as recorded: ${recorded}`],
    ...offer.options.map((/** @type {string} */ option) => [option, option.replaceAll(",", ", ")]),
  ]);
  fillSelect(byId("replay-release"), [
    ["", `as recorded: ${offer.torch_version}`],
    ...offer.releases.map((/** @type {string} */ release) => [release, release]),
  ]);
  fillSelect(byId("replay-change"), [
    ["", "as recorded"],
    [FIND_CHANGES, "find changes ..."],
  ]);
  byId("replay-capacity").value = "";
  byId("replay-options").value = "";
  byId("replay-capacity").placeholder = offer.capacity_bytes ? bytesText(offer.capacity_bytes) : "not recorded";
  byId("replay-marks").replaceChildren(
    ...capacityMarks(offer, (name) => {
      byId("replay-capacity").value = name;
      replayNow();
    }),
  );
  enableReplayControls();
}

/** A changed program is replayed under the recorded settings and release. */
function enableReplayControls() {
  const isChanged = !["", FIND_CHANGES].includes(byId("replay-change").value);
  for (const id of ["replay-preset", "replay-options", "replay-release"]) byId(id).disabled = isChanged;
}

/** Has the analyzer find the changes, and lists them. */
async function findChanges() {
  const { port } = replay;
  setReplayStatus("Finding changes to the program and replaying each ...");
  const answer = await port.ask({ request: "changes", conditions: { ...replayConditions(), change: "" } });
  if (replay.port !== port) return;
  setReplayStatus(answer.error ?? "", true);
  if (answer.error) return;
  const { changes } = answer.changes;
  fillSelect(byId("replay-change"), [
    ["", changes.length ? "as recorded" : "as recorded; the recording suggests no change"],
    ...changes.map((/** @type {any} */ { key, label, reserved_gain_bytes: gain }) => [
      key,
      `${label} (${gain < 0 ? "+" : "-"}${bytesText(Math.abs(gain))})`,
    ]),
  ]);
}

/** Copies the value of a control to another one when it changes. @param {string} id @param {string} event @param {string} other */
function wireCopy(id, event, other) {
  byId(id).addEventListener(event, () => {
    byId(other).value = byId(id).value;
    replayNow();
  });
}

export function wireReplay() {
  byId("replay-open").addEventListener("click", openReplayPanel);
  byId("replay-slider").addEventListener("input", () => {
    byId("replay-capacity").value = capacityText(Number(byId("replay-slider").value), capacityRange(replay.offer));
    byId("replay-gpu").value = "";
    replayNow();
  });
  byId("replay-capacity").addEventListener("input", replayNow);
  wireCopy("replay-gpu", "change", "replay-capacity");
  wireCopy("replay-preset", "change", "replay-options");
  wireCopy("replay-options", "input", "replay-preset");
  byId("replay-release").addEventListener("change", replayNow);
  byId("replay-change").addEventListener("change", async () => {
    if (byId("replay-change").value === FIND_CHANGES) await findChanges();
    if (!replay.port) return;
    if (byId("replay-change").value) {
      for (const id of ["replay-preset", "replay-options", "replay-release"]) byId(id).value = "";
    }
    enableReplayControls();
    replayNow();
  });
  byId("replay-reset").addEventListener("click", () => {
    for (const id of ["capacity", "gpu", "preset", "options", "release", "change"]) byId(`replay-${id}`).value = "";
    enableReplayControls();
    replayNow();
  });
  byId("replay-text").addEventListener("toggle", updateReplayText);
  byId("replay-show").addEventListener("click", showReplayedRun);
  const frame = byId("replay-curves-frame");
  frame.addEventListener("mousemove", readCurves);
  frame.addEventListener("mouseleave", () => {
    byId("replay-readout").textContent = "";
    byId("replay-curves").querySelector(".cursor")?.setAttribute("d", "");
  });
}

/** The figures of both runs under the pointer. @param {any} event */
function readCurves(event) {
  const { offer, run } = replay;
  const [part] = pointIn(event, byId("replay-curves"));
  const runs = [offer.recorded, run];
  const entry = entryAt(part, runs, offer.entries);
  const [before, now] = runs.map(({ curve }) => ({
    reserved: bytesText(valueAt(curve, curve.reserved, entry)),
    allocated: bytesText(valueAt(curve, curve.allocated, entry)),
  }));
  byId("replay-readout").textContent =
    `about entry ${countText(entry)}: recorded ${before.allocated} of ${before.reserved}, ` +
    `replayed ${now.allocated} of ${now.reserved} reserved`;
  const x = (part * CURVES_WIDTH).toFixed(1);
  byId("replay-curves").querySelector(".cursor")?.setAttribute("d", `M${x},0V${CURVES_HEIGHT}`);
}

/** Shows the replayed run in the page, or the recording again. */
async function showReplayedRun() {
  if (view.page === replayedPage) return showPage(replay.page, { pane: "replay" });
  const { port } = replay;
  const conditions = replayConditions();
  setReplayStatus("Laying out the replayed run ...");
  const answer = await port.ask({ request: "show", conditions });
  if (replay.port !== port) return;
  setReplayStatus(answer.error ?? "", true);
  if (!answer.error) await showRun(answer.show, pages[replay.page], conditionsText(conditions));
}

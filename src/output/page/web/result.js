// The result on the selected device and failed request: headline, reason, holders and advice, as `analyze` lays them out.

import { copyButton } from "./copy.js";
import { isNarrow, showPane } from "./dock.js";
import { bringIntoView, byId, controls, make, press, swatch } from "./dom.js";
import { bytesText, countOf, countText, frameText } from "./format.js";
import { heldColour } from "./held.js";
import { parseJsonElement } from "./main.js";
import { makeSortable } from "./sort.js";
import { device, setMoment, setQuery, view } from "./view.js";

/** Index of the failure that is shown, in the analysis; -1 if none failed. */
let failureIndex = -1;
/** The device and the failure whose result is on the page. */
let drawnResult = "";

/** Another device is shown. */
export function forgetResult() {
  failureIndex = -1;
  drawnResult = "";
}

/** Shows the result on the failure at the moment; at any other moment the one that was shown last. */
export function drawResult() {
  const { failures } = device.data.header;
  const here = device.failureAt(view.moment);
  if (here) failureIndex = here.index;
  else if (!failures.some((/** @type {any} */ one) => one.index === failureIndex))
    failureIndex = failures.at(-1)?.index ?? -1;
  const shown = `${view.page}.${failureIndex}`;
  if (shown !== drawnResult) {
    drawnResult = shown;
    fillResult();
  }
  press("shows", view.query);
  for (const square of document.querySelectorAll("[data-held]"))
    /** @type {any} */ (square).style.backgroundColor = heldColour(Number(square.getAttribute("data-held")));
}

function fillResult() {
  const { failures } = device.data.header;
  const failure = failures.find((/** @type {any} */ one) => one.index === failureIndex);
  byId("failures").replaceChildren(...(failures.length > 1 ? [failurePicker(failures)] : []));
  byId("result-when").textContent = resultTime(failure);
  const summary = byId("summary");
  const template = resultTemplate();
  summary.replaceChildren(...(template ? [template.content.cloneNode(true)] : [otherFailure(failure)]));
  fillAnswer(summary.querySelector(".answer"));
  const title = summary.querySelector("h1") ?? make("h1", {}, `${bytesText(failure?.requested_bytes ?? 0)} requested`);
  title.remove();
  showHeadline(title);
  wireRows(summary, "in the way", (at) => `blocker:${failureIndex}.${at}`);
  for (const [at, button] of wireRows(summary, "held ", (row) => `held:${row}`).entries()) {
    const square = swatch("");
    square.setAttribute("data-held", String(at));
    button.prepend(square, " ");
  }
  for (const table of summary.querySelectorAll("table")) makeSortable(table);
}

/** The result as the page has it; null for an early failure of many. @returns {any} */
function resultTemplate() {
  const of = (/** @type {number | string} */ failure) =>
    document.querySelector(`template.result[data-page="${view.page}"][data-failure="${failure}"]`);
  return of(failureIndex) ?? of("");
}

/** Shows the reason and the advice, with a button that copies the latter. @param {any} answer of the result, if it has one */
function fillAnswer(answer) {
  answer?.remove();
  byId("answer").replaceChildren(...(answer ? [answer] : []));
  const field = (/** @type {string} */ name) =>
    [...(answer?.querySelectorAll("dt") ?? [])].find((one) => one.textContent === name);
  const [copy, advice] = [field("copy"), field("do")];
  const text = (copy ?? advice)?.nextElementSibling?.textContent ?? "";
  const button = copyButton("copy", () => text);
  if (copy) copy.replaceChildren(button);
  else advice?.nextElementSibling?.append(" ", button);
  placeAnswer();
}

/** Puts the answer on top of the pane, or below the headline where the pane is not beside the charts. @param {boolean} [isPrinted] */
export function placeAnswer(isPrinted = false) {
  const isBelowHeadline = isPrinted || isNarrow() || !(byId("pages-section").hidden || parseJsonElement("compared"));
  const before = isBelowHeadline ? document.querySelector(".head") : byId("failures");
  if (before?.nextElementSibling !== byId("answer")) before?.after(byId("answer"));
}

/** When the figures of the result were so. @param {any} failure */
function resultTime(failure) {
  const chosen = device.requestedMoment();
  if (chosen) return chosen.at === "entry" ? `at entry ${countText(chosen.event)}` : "before the first entry";
  if (failure) return `when the request of entry ${device.entryText(failure.moment)} failed`;
  return device.data.entries ? `over all ${countOf(device.data.entries, "entry")}` : "at the snapshot";
}

/** @param {any} failure one without a result */
function otherFailure(failure) {
  const oldest = "This page has the result on the last failures; for this one, name its entry: analyze --at";
  return make("p", {}, `${bytesText(failure.requested_bytes)} requested. ${oldest}.`);
}

/** The headline in one line, with the verdict. @param {any} title */
function showHeadline(title) {
  if (parseJsonElement("compared")) return; // it compares two files
  const reason = [...byId("answer").querySelectorAll("dt")].find((one) => one.textContent === "why");
  const verdict = reason?.nextElementSibling?.textContent?.split(/[:,]/)[0] ?? "";
  if (verdict) title.querySelector(".context")?.prepend(make("strong", { class: "verdict" }, verdict), " ");
  const headline = /** @type {any} */ (document.querySelector(".head h1"));
  headline.replaceChildren(...title.childNodes);
  headline.title = headline.textContent ?? "";
}

/** @param {any[]} failures */
function failurePicker(failures) {
  const choice = make("select", { "aria-label": "which failure", onchange: () => showFailure(Number(choice.value)) });
  for (const failure of failures.slice(-200)) {
    const text = `entry ${device.entryText(failure.moment)}: ${bytesText(failure.requested_bytes)}`;
    const option = make("option", { value: failure.index }, text);
    option.selected = failure.index === failureIndex;
    choice.append(option);
  }
  const count = `${countOf(device.data.header.failure_count, "failure")} in this trace`;
  return controls(choice, make("span", { class: "muted" }, count));
}

/** Goes to a failure. @param {number} index */
export function showFailure(index) {
  const failure = device.data.header.failures.find((/** @type {any} */ one) => one.index === index);
  if (!failure) return;
  failureIndex = index;
  showPane("result");
  setMoment(failure.moment);
}

/**
 * Makes each row of a table of the result a button that shows its blocks on the map and over time.
 * @param {Element} summary
 * @param {string} name how the head of its first column starts
 * @param {(row: number) => string} query of a row
 * @returns {any[]} the buttons
 */
function wireRows(summary, name, query) {
  const isIt = (/** @type {Element} */ one) => one.querySelector("th")?.textContent?.startsWith(name);
  const table = [...summary.querySelectorAll("table")].find(isIt);
  const rows = [...(table?.tBodies[0].rows ?? [])].filter((row) => row.textContent?.indexOf("everything else") !== 0);
  return rows.map((row, at) => {
    const shows = query(at);
    const toggle = () => showBlocks(view.query === shows ? "" : shows);
    const button = make("button", { class: "row", "data-shows": shows, onclick: toggle });
    button.append(...row.cells[0].childNodes);
    row.cells[0].append(button);
    return button;
  });
}

/** @param {any} blocker */
export function blockerLine({ culprit }) {
  return culprit ? frameText(culprit) : "no stack recorded";
}

/** Highlights blocks, at the moment of the result. @param {string} query */
function showBlocks(query) {
  failureIndex = Number(/^blocker:(\d+)/.exec(query)?.[1] ?? failureIndex);
  const failure = device.data.header.failures.find((/** @type {any} */ one) => one.index === failureIndex);
  if (query) setMoment(query.startsWith("held:") ? device.firstMoment() : (failure?.moment ?? view.moment));
  setQuery(query);
  if (query) bringIntoView("map-section");
}

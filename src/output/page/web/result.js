// The result on the selected device and failed request: headline, reason, holders and advice, as `analyze` lays them out.

/** Index of the failure that is shown, in the analysis; -1 if none failed. */
let failureIndex = -1;
/** The device and the failure whose result is on the page. */
let drawnResult = "";

function resultPane() {
  return [
    make("p", { class: "muted", id: "result-when" }),
    make("div", { id: "failures" }),
    make("div", { id: "summary" }),
  ];
}

/** Shows the result on the failure at the moment; at any other moment the one that was shown last. */
function drawResult() {
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
  for (const button of document.querySelectorAll("[data-blocker]"))
    button.setAttribute("aria-pressed", String(view.query === button.getAttribute("data-blocker")));
}

function fillResult() {
  const { failures } = device.data.header;
  const failure = failures.find((/** @type {any} */ one) => one.index === failureIndex);
  byId("failures").replaceChildren(...(failures.length > 1 ? [failurePicker(failures)] : []));
  byId("result-when").textContent = resultTime(failure);
  const summary = byId("summary");
  const template = resultTemplate();
  summary.replaceChildren(...(template ? [template.content.cloneNode(true)] : [otherFailure(failure)]));
  const title = summary.querySelector("h1") ?? make("h1", {}, `${bytesText(failure?.requested_bytes ?? 0)} requested`);
  title.remove();
  showHeadline(title);
  wireBlockers(summary);
}

/** The result as the page has it; null for an early failure of many. @returns {any} */
function resultTemplate() {
  const of = (/** @type {number | string} */ failure) =>
    document.querySelector(`template.result[data-page="${view.page}"][data-failure="${failure}"]`);
  return of(failureIndex) ?? of("");
}

/** When the figures of the result were so. @param {any} failure */
function resultTime(failure) {
  const chosen = device.analysis?.moment;
  if (chosen) return chosen.at === "entry" ? `at entry ${countText(chosen.event)}` : "before the first entry";
  if (failure) return `when the request of entry ${countText(device.entryOf(failure.moment) ?? 0)} failed`;
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
  const reason = [...byId("summary").querySelectorAll("dt")].find((one) => one.textContent === "why");
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
    const text = `entry ${countText(device.entryOf(failure.moment) ?? 0)}: ${bytesText(failure.requested_bytes)}`;
    const option = make("option", { value: failure.index }, text);
    option.selected = failure.index === failureIndex;
    choice.append(option);
  }
  return make(
    "p",
    { class: "bar" },
    choice,
    make("span", { class: "muted" }, `${countOf(device.data.header.failure_count, "failure")} in this trace`),
  );
}

/** Goes to a failure. @param {number} index */
function showFailure(index) {
  const failure = device.data.header.failures.find((/** @type {any} */ one) => one.index === index);
  if (!failure) return;
  failureIndex = index;
  showPane("result");
  setMoment(failure.moment);
}

/** Lets the rows of a table of blockers show them in the map. @param {Element} summary */
function wireBlockers(summary) {
  const isOfBlockers = (/** @type {Element} */ one) => one.querySelector("th")?.textContent === "in the way";
  const table = [...summary.querySelectorAll("table")].find(isOfBlockers);
  for (const [at, row] of [...(table?.tBodies[0].rows ?? [])].entries()) {
    const query = `blocker:${failureIndex}.${at}`;
    const toggle = () => highlightBlocker(view.query === query ? "" : query);
    const button = make("button", { class: "row", "data-blocker": query, onclick: toggle });
    button.append(...row.cells[0].childNodes);
    row.cells[0].append(button);
  }
}

/** @param {any} blocker */
function blockerLine({ culprit }) {
  return culprit ? `${shortPath(culprit.file)}:${culprit.line} ${culprit.name}` : "no stack recorded";
}

/** Highlights the blocks, at the moment of the failure. @param {string} query */
function highlightBlocker(query) {
  failureIndex = Number(/^blocker:(\d+)/.exec(query)?.[1] ?? failureIndex);
  const failure = device.data.header.failures.find((/** @type {any} */ one) => one.index === failureIndex);
  if (query && failure) setMoment(failure.moment);
  setQuery(query);
  if (query) bringIntoView("map-section");
}

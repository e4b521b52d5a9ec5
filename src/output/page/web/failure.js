// The panel of a failed request: its blockers, which can be highlighted, and the settings that would have served it.

/** Index of the failure that is shown, in the analysis. */
let failureIndex = -1;

function drawFailurePanel() {
  const panel = byId("failure");
  const { failures } = device.data.header;
  for (const button of document.querySelectorAll("[data-blocker]"))
    button.setAttribute("aria-pressed", String(view.query === button.getAttribute("data-blocker")));
  panel.hidden = !failures.length;
  if (panel.hidden) return;
  if (!failures.some((/** @type {any} */ one) => one.index === failureIndex)) failureIndex = failures.at(-1).index;
  // The document above has all of the last failure of a page's only device.
  const isAbove = pages.length === 1 && failureIndex === device.analysis.ooms.length - 1;
  panel.hidden = isAbove && failures.length === 1;
  const report = device.analysis?.ooms?.[failureIndex];
  const failure = failures.find((/** @type {any} */ one) => one.index === failureIndex);
  const head = make(
    "h2",
    {},
    "The failed request",
    " ",
    make("span", { class: "bad" }, report ? spaced(report.verdict) : ""),
  );
  panel.replaceChildren(
    head,
    ...(failures.length > 1 ? [failurePicker(failures)] : []),
    ...(isAbove ? [] : failureDetails(report, failure)),
  );
}

/** @param {any[]} failures */
function failurePicker(failures) {
  const choice = make("select", { "aria-label": "which failure", onchange: () => showFailure(Number(choice.value)) });
  for (const failure of failures.slice(-200)) {
    const verdict = device.analysis?.ooms?.[failure.index]?.verdict;
    const text = `entry ${countText(device.entryOf(failure.moment) ?? 0)}: ${bytesText(failure.requested_bytes)}${verdict ? `, ${verdict}` : ""}`;
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
  redraw("failure");
}

/** @param {any} report its entry in the analysis @param {any} failure its entry in the page's data @returns {Node[]} */
function failureDetails(report, failure) {
  if (!report)
    return [
      make("p", {}, `${bytesText(failure.requested_bytes)} requested; the analysis keeps the last failures only.`),
    ];
  const where = report.culprit
    ? `${report.culprit.file}:${report.culprit.line} in ${report.culprit.name}`
    : "no stack recorded";
  const goButton = make(
    "button",
    { onclick: () => showFailure(failureIndex) },
    `go to entry ${countText(report.event)}`,
  );
  const reason = make(
    "p",
    {},
    `${bytesText(report.requested_bytes)} requested at `,
    make("code", {}, where),
    `. ${report.verdict_reason[0]?.toUpperCase() ?? ""}${report.verdict_reason.slice(1)}. `,
    goButton,
  );
  return [blockerList(report), remedyTable(report, failure.outcomes), reason];
}

/** @param {any} report */
function blockerList(report) {
  const box = make("div", {}, make("h3", {}, "In the way: click to show in the map"));
  const blockers = report.blockers || [];
  if (!blockers.length)
    box.append(
      make("p", { class: "muted" }, "No live block separates free blocks that would have been large enough together."),
    );
  blockers.slice(0, 6).forEach((/** @type {any} */ blocker, /** @type {number} */ at) => {
    const query = `blocker:${failureIndex}.${at}`;
    const line = blockerLine(blocker);
    const isOn = view.query === query;
    const keep = blocker.blocks === 1 ? "keeps" : "keep";
    const text = `${countOf(blocker.blocks, "block")} of ${bytesText(blocker.bytes_held)} ${keep} ${bytesText(blocker.bytes_unlocked)} apart: ${line}`;
    box.append(
      make(
        "button",
        { class: "row", "aria-pressed": String(isOn), onclick: () => highlightBlocker(isOn ? "" : query) },
        text,
      ),
    );
  });
  return box;
}

/** Lets the rows of the document's table of blockers show them in the map. @param {Element} summary */
function wireBlockers(summary) {
  const isOfBlockers = (/** @type {Element} */ one) => one.querySelector("th")?.textContent === "in the way";
  const table = [...summary.querySelectorAll("table")].find(isOfBlockers);
  const failure = (analysis.snapshots[0].devices[0]?.ooms.length ?? 0) - 1;
  for (const [at, row] of [...(table?.tBodies[0].rows ?? [])].entries()) {
    const query = `blocker:${failure}.${at}`;
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

/** @param {any} report @param {string[]} outcomes of each setting, in a sentence */
function remedyTable(report, outcomes) {
  const box = make("div", {}, make("h3", {}, "The same requests under other settings, replayed"));
  const remedies = report.remedies || [];
  if (!remedies.length) {
    box.append(
      make(
        "p",
        { class: "muted" },
        "No setting was tried: the model does not reproduce this trace, or the failure is not one of its last.",
      ),
    );
    return box;
  }
  const served = remedies.filter((/** @type {any} */ one) => one.avoids_oom).length;
  const rows = remedies.map((/** @type {any} */ one, /** @type {number} */ at) => [
    remedyText(one, outcomes[at]),
    bytesCell(one.peak_reserved_bytes),
    one.spare_bytes === undefined ? "" : bytesCell(one.spare_bytes),
  ]);
  const heads = ["setting", "#peak reserved", "#headroom"];
  /** @param {string} caption @param {any[]} shown */
  const table = (caption, shown) => {
    const made = makeTable(caption, heads, shown);
    made.classList.add("settings");
    return made;
  };
  box.append(table(`${served} of ${countOf(rows.length, "setting")} would have served it`, rows.slice(0, 6)));
  if (rows.length > 6)
    box.append(make("details", {}, make("summary", {}, `${rows.length - 6} more`), table("", rows.slice(6))));
  return box;
}

/** A setting and its outcome. @param {any} remedy @param {string} outcome in a sentence */
function remedyText({ avoids_oom: serves, settings, without }, outcome) {
  return make(
    "span",
    {},
    make("span", { class: serves ? "good" : "bad" }, serves ? "✓ " : "✗ "),
    make("code", {}, breakable([settings, without ? `without ${without}` : ""].filter(Boolean).join(", "))),
    make("span", { class: "muted" }, `: ${outcome}`),
  );
}

/** Allows line breaks after commas. @param {string} text */
function breakable(text) {
  return text.replace(/,/g, ",\u200b");
}

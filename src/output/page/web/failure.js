// A failed request: what blocked it, and what would have served it, from the analysis; each blocker lights its blocks.

/** Which failure is shown, by its place among those of the analysis. */
let failureIndex = -1;

function drawFailurePanel() {
  const panel = byId("failure");
  const { failures } = device.data.header;
  panel.hidden = !failures.length;
  if (panel.hidden) return;
  if (!failures.some((/** @type {any} */ one) => one.index === failureIndex)) failureIndex = failures.at(-1).index;
  const told = device.analysis?.ooms?.[failureIndex];
  const here = failures.find((/** @type {any} */ one) => one.index === failureIndex);
  const head = make(
    "h2",
    {},
    "The failed request",
    " ",
    make("span", { class: "bad" }, told ? told.verdict.replace(/-/g, " ") : ""),
  );
  panel.replaceChildren(head, ...(failures.length > 1 ? [failurePicker(failures)] : []), ...failureBody(told, here));
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
  setMoment(failure.moment);
  redraw("failure");
}

/** @param {any} told of the analysis @param {any} here of the page's data @returns {Node[]} */
function failureBody(told, here) {
  if (!told)
    return [make("p", {}, `${bytesText(here.requested_bytes)} requested; the analysis keeps the last failures only.`)];
  const where = told.culprit
    ? `${told.culprit.file}:${told.culprit.line} in ${told.culprit.name}`
    : "no stack recorded";
  const go = make("button", { onclick: () => showFailure(failureIndex) }, `go to entry ${countText(told.event)}`);
  const reason = make(
    "p",
    {},
    `${bytesText(told.requested_bytes)} requested at `,
    make("code", {}, where),
    `. ${told.verdict_reason[0]?.toUpperCase() ?? ""}${told.verdict_reason.slice(1)}. `,
    go,
  );
  return [reason, make("div", { class: "three" }, blockersOf(told), remediesOf(told))];
}

/** @param {any} told */
function blockersOf(told) {
  const box = make("div", {}, make("h3", {}, "In the way: light them in every picture"));
  const blockers = told.blockers || [];
  if (!blockers.length)
    box.append(make("p", { class: "muted" }, "Nothing stands between free blocks that would have made room."));
  blockers.slice(0, 6).forEach((/** @type {any} */ blocker, /** @type {number} */ at) => {
    const query = `blocker:${failureIndex}.${at}`;
    const line = blocker.culprit
      ? `${shortPath(blocker.culprit.file)}:${blocker.culprit.line} ${blocker.culprit.name}`
      : "no stack recorded";
    const on = view.q === query;
    const text = `${countOf(blocker.blocks, "block")} of ${bytesText(blocker.bytes_held)} keep ${bytesText(blocker.bytes_unlocked)} apart: ${line}`;
    box.append(
      make("button", { class: "row", "aria-pressed": String(on), onclick: () => lightBlocker(on ? "" : query) }, text),
    );
  });
  return box;
}

/** Lights the blocks where they stand: at the failure. @param {string} query */
function lightBlocker(query) {
  const failure = device.data.header.failures.find((/** @type {any} */ one) => one.index === failureIndex);
  if (query && failure) setMoment(failure.moment);
  setQuery(query);
}

/** @param {any} told */
function remediesOf(told) {
  const box = make("div", {}, make("h3", {}, "The same requests under other settings, replayed"));
  const remedies = told.remedies || [];
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
  const rows = remedies.map((/** @type {any} */ one) => [
    make("span", { class: one.avoids_oom ? "good whole" : "bad whole" }, one.avoids_oom ? "✓ served" : "✗ fails"),
    make("code", {}, breakable([one.settings, one.without ? `without ${one.without}` : ""].filter(Boolean).join(", "))),
    bytesText(one.peak_reserved_bytes),
    one.spare_bytes === undefined ? "" : bytesText(one.spare_bytes),
    one.next_step
      ? one.next_step.fails
        ? one.next_step.served_requests
          ? `fails after ${countText(one.next_step.served_requests)}`
          : "its first fails"
        : "served"
      : "",
  ]);
  const heads = ["", "setting", "#peak reserved", "#to spare", "one more step"];
  if (rows.every((/** @type {any[]} */ row) => row[4] === "")) for (const row of [heads, ...rows]) row.pop();
  box.append(
    makeTable(`${served} of ${countOf(rows.length, "setting")} would have served it`, heads, rows.slice(0, 6)),
  );
  if (rows.length > 6)
    box.append(
      make("details", {}, make("summary", {}, `${rows.length - 6} more`), makeTable("", heads, rows.slice(6))),
    );
  return box;
}

/** Text that may be broken after its commas. @param {string} text */
function breakable(text) {
  return text.replace(/,/g, ",\u200b");
}

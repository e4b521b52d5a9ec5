// Keyboard shortcuts.

const KEYS = [
  ["← →", "one entry back or forward; ten with Shift"],
  ["w s + −", "zoom in or out around the moment"],
  ["a f", "move the zoom to the left or right"],
  ["Home End", "the first or last entry"],
  ["↑ ↓ Enter", "in a picture: go through what it shows, select it"],
  ["0", "the whole trace"],
  ["p", "the peak"],
  ["o", "the next failed request"],
  ["d m", "A of the comparison is this moment"],
  ["[ ]", "the previous or next end of a training step"],
  ["/", "search stacks and variables"],
  ["Esc", "clear the search, the selection and the root of the flame graph"],
  ["?", "show these keys"],
];

/** @param {KeyboardEvent} event @returns {(() => void) | undefined} */
function actionForKey(event) {
  const step = event.shiftKey ? 10 : 1;
  const width = view.end - view.start;
  switch (event.key) {
    case "ArrowRight":
      return () => setMoment(view.moment + step);
    case "ArrowLeft":
      return () => setMoment(view.moment - step);
    case "Home":
      return () => setMoment(0);
    case "End":
      return () => setMoment(device.data.entries);
    case "a":
      return () => panBy(-0.2);
    case "f":
      return () => panBy(0.2);
    case "w":
    case "+":
    case "=":
      return () => setZoom(view.moment - width / 4, view.moment + width / 4);
    case "s":
    case "-":
      return () => setZoom(view.moment - width, view.moment + width);
    case "0":
      return showWhole;
    case "p":
      return () => setMoment(device.totals.peak);
    case "o":
      return nextFailure;
    case "d":
    case "m":
      return () => setFrom(view.moment);
    case "[":
      return () => goToStep(-1);
    case "]":
      return () => goToStep(1);
    case "/":
      return () => byId("query").focus();
    case "?":
      return () => byId("keys").showModal();
    case "Escape":
      return () => {
        clearSearch();
        select(-1);
        selectSegment(-1);
        setRoot(0);
      };
    default:
      return undefined;
  }
}

/** Goes to the next end of a training step, or the previous one. @param {number} by */
function goToStep(by) {
  /** @type {number[]} */
  const steps = device.data.header.steps;
  const next = by > 0 ? steps.find((m) => m > view.moment) : steps.findLast((m) => m < view.moment);
  if (next !== undefined) setMoment(next);
}

function wireKeys() {
  addEventListener("keydown", (event) => {
    const target = /** @type {any} */ (event.target);
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName || "") && target.type !== "range";
    if (!device || typing || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    const action = actionForKey(event);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function keysDialog() {
  const rows = KEYS.map(([key, does]) => make("tr", {}, make("td", {}, make("kbd", {}, key)), make("td", {}, does)));
  const dialog = make("dialog", { id: "keys", "aria-label": "keys" }, make("table", {}, make("tbody", {}, ...rows)));
  dialog.append(
    make(
      "p",
      { class: "muted" },
      "On the timeline, wheel or pinch zooms and drag moves. In the overview, drag selects a range.",
    ),
  );
  dialog.append(make("button", { onclick: () => dialog.close() }, "close"));
  return dialog;
}

// Keyboard shortcuts.

const KEYS = [
  ["← →", "one entry back or forward; ten with Shift"],
  ["+ −", "zoom in or out around the moment"],
  ["0", "the whole trace"],
  ["p", "the peak"],
  ["o", "the next failed request"],
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
    case "+":
    case "=":
      return () => setZoom(view.moment - width / 4, view.moment + width / 4);
    case "-":
      return () => setZoom(view.moment - width, view.moment + width);
    case "0":
      return showWhole;
    case "p":
      return () => setMoment(device.totals.peak);
    case "o":
      return nextFailure;
    case "/":
      return () => byId("query").focus();
    case "?":
      return () => byId("keys").showModal();
    case "Escape":
      return () => {
        setQuery("");
        select(-1);
        setRoot(0);
      };
    default:
      return undefined;
  }
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

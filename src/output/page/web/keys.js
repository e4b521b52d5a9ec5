// The keyboard.

const KEYS = [
  ["← →", "one entry back or on; with Shift ten"],
  ["+ −", "zoom in or out about the moment"],
  ["0", "the whole trace"],
  ["p", "the peak"],
  ["o", "the next failed request"],
  ["/", "search stacks"],
  ["Esc", "clear the search, the selection, the flame graph's root"],
  ["?", "these keys"],
];

/** @param {KeyboardEvent} event @returns {(() => void) | undefined} */
function keyDoes(event) {
  const far = event.shiftKey ? 10 : 1;
  const width = view.b - view.a;
  switch (event.key) {
    case "ArrowRight":
      return () => setMoment(view.m + far);
    case "ArrowLeft":
      return () => setMoment(view.m - far);
    case "+":
    case "=":
      return () => setZoom(view.m - width / 4, view.m + width / 4);
    case "-":
      return () => setZoom(view.m - width, view.m + width);
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
    const does = keyDoes(event);
    if (!does) return;
    event.preventDefault();
    does();
  });
}

function keysDialog() {
  const rows = KEYS.map(([key, does]) => make("tr", {}, make("td", {}, make("kbd", {}, key)), make("td", {}, does)));
  const dialog = make("dialog", { id: "keys", "aria-label": "keys" }, make("table", {}, make("tbody", {}, ...rows)));
  dialog.append(
    make(
      "p",
      { class: "muted" },
      "Wheel or pinch on the timeline zooms, drag moves; drag in the overview chooses a range.",
    ),
  );
  dialog.append(make("button", { onclick: () => dialog.close() }, "close"));
  return dialog;
}

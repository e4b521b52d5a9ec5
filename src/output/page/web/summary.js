// Arranges the elements that need no script: the headline of the selected result stays on top, what is of all devices moves
// into the dock, and the report below is folded.

import { byId, make } from "./dom.js";
import { pages } from "./pages.js";
import { makeSortable } from "./sort.js";
import { switchTheme } from "./theme.js";

export function arrangeSummary() {
  const first = byId("first");
  const app = byId("app");
  const title = /** @type {any} */ (first.querySelector("h1"));
  const children = [...first.children];
  // A note about the page itself precedes the title, and stays.
  const from = title ? children.indexOf(title) : 0;
  const screen = children.slice(from, children.indexOf(app));
  if (pages.length > 1 && title) {
    // The table of all devices is above the views.
    const rest = screen.slice(1).filter((one) => !/^(rank|device)/.test(one.querySelector("th")?.textContent ?? ""));
    const all = make("details", { id: "job" }, make("summary", {}, ...title.childNodes), ...rest);
    byId("pane-result").append(all);
  }
  for (const element of screen) element.remove();
  const head = make(
    "div",
    { class: "bar head" },
    // Until the result of the selected device is drawn.
    make("h1", {}, ...(pages.length === 1 && title ? title.childNodes : [])),
    make("span", { class: "space" }),
    make("span", { class: "save muted" }, "save:"),
    make("button", { id: "save-png" }, "PNG"),
    make("button", { id: "save-svg" }, "SVG"),
    make("button", { class: "keys", onclick: () => byId("keys").showModal() }, "keys ", make("kbd", {}, "?")),
    make("button", { onclick: switchTheme, id: "theme" }, "light or dark"),
  );
  first.prepend(head);
  foldReport();
}

/** Folds the report below the summary: the views show the same. */
function foldReport() {
  const rest = make("details", { class: "rest" }, make("summary", {}, "The full analysis as text"));
  const app = byId("app");
  const views = byId("views");
  while (app.nextSibling) rest.append(app.nextSibling);
  views.append(rest);
  for (const table of rest.querySelectorAll("table")) makeSortable(table);
}

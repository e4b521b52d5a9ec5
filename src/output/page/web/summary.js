// Arranges the elements that need no script: the headline stays on top, the rest of the first screen moves to the dock, and
// the report below it is folded.

/** The headline in one line; the pane "Result" has the reason, the tables and the advice. */
function arrangeSummary() {
  const first = byId("first");
  const app = byId("app");
  const title = first.querySelector("h1");
  if (title) {
    const reason = [...first.querySelectorAll("dt")].find((one) => one.textContent === "why")?.nextElementSibling;
    const verdict = reason?.textContent?.split(/[:,]/)[0] ?? "";
    if (verdict) title.querySelector(".context")?.prepend(make("strong", { class: "verdict" }, verdict), " ");
    title.title = title.textContent ?? "";
  }
  const head = make(
    "div",
    { class: "bar head" },
    ...(title ? [title] : []),
    make("span", { class: "space" }),
    make("span", { class: "save muted" }, "save:"),
    action("save-png", "PNG"),
    action("save-svg", "SVG"),
    make("button", { class: "keys", onclick: () => byId("keys").showModal() }, "keys ", make("kbd", {}, "?")),
    make("button", { onclick: switchTheme, id: "theme" }, "light or dark"),
  );
  const children = [...first.children];
  // A note about the page itself precedes the title, and stays.
  const from = title ? children.indexOf(title) + 1 : 0;
  byId("summary").append(...children.slice(from, children.indexOf(app)));
  if (pages.length === 1) wireBlockers(byId("summary"));
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
}

// Arranges the elements that need no script: two lines of result stay on top, the rest of the summary moves to the dock, and
// the report below it is folded.

/** The result on top of the page, in two lines; the pane "Result" has all of it. */
function arrangeSummary() {
  const first = byId("first");
  const app = byId("app");
  const title = first.querySelector("h1");
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
  const fields = first.querySelector("dl");
  const result = fields?.querySelector("dd")?.textContent ?? "";
  const rest = [...first.children].slice(0, [...first.children].indexOf(app));
  const moved = rest.filter((element) => element !== title && element.className !== "warning");
  byId("summary").append(...moved.filter((element) => element === fields));
  byId("file-facts").append(...moved.filter((element) => element !== fields));
  first.prepend(head, make("p", { class: "result", title: result }, make("strong", {}, result)));
  foldReport();
}

/** Folds the report below the summary: the views show the same. */
function foldReport() {
  const rest = make("details", { class: "rest" }, make("summary", {}, "The full analysis as text"));
  const app = byId("app");
  const views = byId("views");
  const tried = document.querySelectorAll("#first > section.whatif");
  while (app.nextSibling) rest.append(app.nextSibling);
  views.append(...tried, rest);
}

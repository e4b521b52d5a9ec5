// The field that searches stacks.

let searchLater = 0;

function wireSearch() {
  const field = byId("query");
  field.addEventListener("input", () => {
    clearTimeout(searchLater);
    searchLater = setTimeout(() => setQuery(field.value), 120);
  });
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") {
      clearTimeout(searchLater);
      setQuery(field.value);
    } else if (event.key === "Escape") {
      setQuery("");
      field.blur();
    }
  });
  byId("lit-clear").addEventListener("click", () => setQuery(""));
  byId("lit-peak").addEventListener("click", gotoLitPeak);
}

function drawSearch() {
  const field = byId("query");
  if (document.activeElement !== field) field.value = view.q;
}

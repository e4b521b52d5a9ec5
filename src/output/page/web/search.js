// The search field.

import { showPane } from "./dock.js";
import { byId } from "./dom.js";
import { clearSearch, goToHighlightPeak, zoomToFound } from "./found.js";
import { queryLabel } from "./highlight.js";
import { setQuery, view } from "./view.js";

let searchTimer = 0;

export function wireSearch() {
  const field = byId("query");
  field.addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => setQuery(field.value), 120);
  });
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") {
      clearTimeout(searchTimer);
      if (field.value || !queryLabel(view.query)) setQuery(field.value);
      showPane("search");
      zoomToFound();
    } else if (event.key === "Escape") {
      setQuery("");
      field.blur();
    }
  });
  byId("highlight-clear").addEventListener("click", clearSearch);
  byId("highlight-peak").addEventListener("click", goToHighlightPeak);
}

export function drawSearch() {
  const field = byId("query");
  // A highlight that no search made is named beside the field.
  if (document.activeElement !== field) field.value = queryLabel(view.query) ? "" : view.query;
}

// The view in the address of the page, so that a link shows the same.

let hashTimer = 0;
let writtenHash = "";

function formatHash() {
  const parts = [`t=${view.moment}`, `v=${Math.round(view.start)}-${Math.round(view.end)}`, `m=${view.mode}`];
  if (view.axis !== "entry") parts.push(`x=${view.axis}`);
  if (view.selected >= 0) parts.push(`sel=${view.selected}`);
  if (view.query) parts.push(`q=${encodeURIComponent(view.query)}`);
  parts.push(`d=${view.pane}`);
  if (view.page) parts.push(`page=${view.page}`);
  return `#${parts.join("&")}`;
}

function drawHash() {
  clearTimeout(hashTimer);
  hashTimer = setTimeout(() => {
    writtenHash = formatHash();
    try {
      history.replaceState(null, "", writtenHash);
    } catch {
      // Some viewers forbid it; the page works without.
    }
  }, 250);
}

/** The view that an address requests. @param {string} hash @returns {Partial<View>} */
function parseHash(hash) {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Partial<View>} */
  const changes = {};
  /** @param {"moment" | "selected" | "page"} property @param {string} name */
  const setNumber = (property, name) => {
    const text = parameters.get(name);
    if (text !== null && Number.isFinite(Number(text))) changes[property] = Number(text);
  };
  setNumber("moment", "t");
  setNumber("selected", "sel");
  setNumber("page", "page");
  const zoom = /^(\d+)-(\d+)$/.exec(parameters.get("v") || "");
  if (zoom) [changes.start, changes.end] = [Number(zoom[1]), Number(zoom[2])];
  const mode = parameters.get("m");
  if (mode === "category" || mode === "line" || mode === "variable" || mode === "each") changes.mode = mode;
  if (parameters.get("x") === "time") changes.axis = "time";
  const query = parameters.get("q");
  if (query) changes.query = query;
  const pane = parameters.get("d");
  if (pane) changes.pane = pane;
  return changes;
}

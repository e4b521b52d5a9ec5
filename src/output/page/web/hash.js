// The view in the address, so that a link shows a colleague the same.

let hashLater = 0;
let ownHash = "";

function hashOfView() {
  const parts = [`t=${view.m}`, `v=${Math.round(view.a)}-${Math.round(view.b)}`, `m=${view.mode}`];
  if (view.x !== "entry") parts.push(`x=${view.x}`);
  if (view.sel >= 0) parts.push(`sel=${view.sel}`);
  if (view.q) parts.push(`q=${encodeURIComponent(view.q)}`);
  if (view.page) parts.push(`page=${view.page}`);
  return `#${parts.join("&")}`;
}

function drawHash() {
  clearTimeout(hashLater);
  hashLater = setTimeout(() => {
    ownHash = hashOfView();
    try {
      history.replaceState(null, "", ownHash);
    } catch {
      // Some viewers forbid it: then there is no link.
    }
  }, 250);
}

/** What an address asks for. @param {string} hash @returns {Partial<View>} */
function wishOf(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {any} */
  const wish = {};
  /** @param {string} from @param {string} to */
  const number = (from, to) => {
    const text = words.get(from);
    if (text !== null && Number.isFinite(Number(text))) wish[to] = Number(text);
  };
  number("t", "m");
  number("sel", "sel");
  number("page", "page");
  const zoom = /^(\d+)-(\d+)$/.exec(words.get("v") || "");
  if (zoom) [wish.a, wish.b] = [Number(zoom[1]), Number(zoom[2])];
  const mode = words.get("m");
  if (mode && ["category", "line", "each"].includes(mode)) wish.mode = mode;
  if (words.get("x") === "time") wish.x = "time";
  if (words.get("q")) wish.q = words.get("q");
  return wish;
}

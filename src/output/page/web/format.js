// Formats numbers like the command line: three digits, binary units.

/** @param {number} bytes */
function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = Math.abs(bytes);
  let unit = 0;
  // A number that rounds to 1000 has four digits: the next unit.
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = Number.isInteger(size) ? countText(size) : size.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  return `${bytes < 0 ? "-" : ""}${digits} ${units[unit]}`;
}

/** @param {number} value */
function countText(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** `1 block`, `2 blocks`. @param {number} value @param {string} noun */
function countOf(value, noun) {
  return `${countText(value)} ${noun}${value === 1 ? "" : noun.endsWith("y") ? "" : "s"}`;
}

/** @param {number} part @param {number} whole */
function percentText(part, whole) {
  const percent = whole > 0 ? (100 * part) / whole : 0;
  return `${percent > 0 && percent < 9.95 ? percent.toFixed(1) : Math.round(percent)}%`;
}

/** @param {number} us microseconds */
function secondsText(us) {
  const seconds = us / 1e6;
  return `${seconds.toFixed(Math.abs(seconds) < 10 ? 4 : 2)} s`;
}

/** A word of the JSON for people: `optimizer-state` is "optimizer state". @param {string} word */
function spaced(word) {
  return word.replace(/-/g, " ");
}

/** The last two parts of a path. @param {string} path */
function shortPath(path) {
  return path.split("/").slice(-2).join("/");
}

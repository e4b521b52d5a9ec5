// Formats numbers like the command line: three digits, binary units.

/** @param {number} bytes */
export function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [size, unit] = [Math.abs(bytes), 0];
  // A number that rounds to 1000 has four digits: the next unit.
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = Number.isInteger(size) ? countText(size) : toFixedEven(size, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  return `${bytes < 0 ? "-" : ""}${digits} ${units[unit]}`;
}

/** `toFixed`, with halves rounded to even, as the command line does: 25.25 is 25.2. @param {number} value @param {number} digits */
function toFixedEven(value, digits) {
  const scaled = value * 10 ** digits;
  const floor = Math.floor(scaled);
  return scaled - floor === 0.5 && floor % 2 === 0 ? (floor / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

/** @param {number} value */
export function countText(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** `1 block`, `2 blocks`. @param {number} value @param {string} noun */
export function countOf(value, noun) {
  const plural = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${countText(value)} ${value === 1 ? noun : plural}`;
}

/** Only nothing is 0%, and only all is 100%. @param {number} part @param {number} whole */
export function percentText(part, whole) {
  const percent = whole > 0 ? (100 * part) / whole : 0;
  if (percent <= 0) return "0%";
  if (percent < 0.1) return "<0.1%";
  if (percent < 9.95) return `${percent.toFixed(1)}%`;
  return percent >= 99.5 && percent < 100 ? `${Math.min(99.9, percent).toFixed(1)}%` : `${Math.round(percent)}%`;
}

/** @param {number} us microseconds */
export function secondsText(us) {
  const seconds = us / 1e6;
  return `${seconds.toFixed(Math.abs(seconds) < 10 ? 4 : 2)} s`;
}

/** A word of the JSON for people: `optimizer-state` is "optimizer state". @param {string} word */
export function spaced(word) {
  return word.replace(/-/g, " ").replace(/^kv /, "KV ");
}

/** A line of code, shortly. @param {{file: string, line: number, name: string}} frame */
export function frameText({ file, line, name }) {
  return `${shortPath(file)}:${line} ${name}`;
}

/** The last two parts of a path. @param {string} path */
export function shortPath(path) {
  return path.split("/").slice(-2).join("/");
}

// The colours of the style sheet as pixels, and the switch between light and dark.

/** An opaque colour as in ImageData. @param {string} hex `#rrggbb` */
function pixelOf(hex) {
  const value = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/** @param {number} pixel @param {number} other @param {number} share of the other */
function mix(pixel, other, share) {
  let mixed = 0xff000000;
  for (const shift of [0, 8, 16]) {
    const value = ((pixel >>> shift) & 255) * (1 - share) + ((other >>> shift) & 255) * share;
    mixed |= Math.round(value) << shift;
  }
  return mixed >>> 0;
}

/** @param {number} pixel */
function cssOf(pixel) {
  return `rgb(${pixel & 255},${(pixel >>> 8) & 255},${(pixel >>> 16) & 255})`;
}

/** Black or white, whichever is more readable on the colour. @param {string} hex */
function textColourOn(hex) {
  const pixel = pixelOf(hex);
  return 0.299 * (pixel & 255) + 0.587 * ((pixel >>> 8) & 255) + 0.114 * ((pixel >>> 16) & 255) > 140
    ? "#101418"
    : "#ffffff";
}

/** The colours of the style sheet, read after each change of theme. @type {Record<string, string>} */
let theme = {};

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  theme = {};
  for (const name of ["back", "fore", "muted", "line", "card", "accent", "bad", "free", "stripe"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

/** Switches between light and dark. Until then the system decides. */
function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

// The colours of the style sheet as pixels, and the switch between light and dark.

/** An opaque colour as in ImageData. @param {string} hex `#rrggbb` */
export function pixelOf(hex) {
  const value = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/** @param {number} pixel @param {number} other @param {number} share of the other */
export function mix(pixel, other, share) {
  let mixed = 0xff000000;
  for (const shift of [0, 8, 16]) {
    const value = ((pixel >>> shift) & 255) * (1 - share) + ((other >>> shift) & 255) * share;
    mixed |= Math.round(value) << shift;
  }
  return mixed >>> 0;
}

/** @param {number} pixel */
export function cssOf(pixel) {
  return `rgb(${pixel & 255},${(pixel >>> 8) & 255},${(pixel >>> 16) & 255})`;
}

/** Light of a pixel, 0 to 1, as the contrast of text is defined (WCAG 2). @param {number} pixel */
function luminance(pixel) {
  const [red, green, blue] = [0, 8, 16].map((shift) => {
    const value = ((pixel >>> shift) & 255) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white, whichever has more contrast with a pixel. @param {number} pixel */
export function textColourOn(pixel) {
  const light = luminance(pixel) + 0.05;
  return light / 0.05 > 1.05 / light ? "#000000" : "#ffffff";
}

/** The contrast of a pixel with the text on it. @param {number} pixel */
export function textContrast(pixel) {
  const [light, text] = [pixel, pixelOf(textColourOn(pixel))].map((one) => luminance(one) + 0.05);
  return Math.max(light, text) / Math.min(light, text);
}

/** The colours of the style sheet, read after each change of theme. @type {Record<string, string>} */
export let theme = {};

export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  theme = {};
  for (const name of ["back", "fore", "muted", "line", "card", "accent", "bad", "good", "free", "stripe"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

/** Switches between light and dark. Until then the system decides. */
export function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

// Creates elements. All data from the file becomes text here; nothing is parsed as markup.

import { isNarrow } from "./dock.js";
import { saveCsv } from "./export.js";
import { bytesText } from "./format.js";
import { makeSortable } from "./sort.js";

/** An element with attributes, listeners (`onclick` and so on) and children; strings become text. @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node | string)} children @returns {any} */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/** An element of a drawing. @param {string} tag @param {Record<string, any>} attributes @param {string} [text] */
export function makeSvg(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/** A muted paragraph. @param {string} text @returns {any} */
export function mutedText(text) {
  return make("p", { class: "muted" }, text);
}

/** A row of controls. @param {...(Node | string)} children @returns {any} */
export function controls(...children) {
  return make("p", { class: "bar" }, ...children);
}

/** Presses the one of the buttons with attribute `data-name` that has this value. @param {string} name @param {string} value */
export function press(name, value) {
  for (const button of document.querySelectorAll(`[data-${name}]`))
    button.setAttribute("aria-pressed", String(button.getAttribute(`data-${name}`) === value));
}

/** Calls `choose` with the value of the clicked one of these buttons. @param {string} name @param {(value: any) => void} choose */
export function wireChoice(name, choose) {
  for (const button of document.querySelectorAll(`[data-${name}]`))
    button.addEventListener("click", () => choose(button.getAttribute(`data-${name}`)));
}

/** A small square in a colour of the page, hatched for a guess. @param {string} colour @param {boolean} [isGuess] */
export function swatch(colour, isGuess) {
  const square = make("i", { class: isGuess ? "swatch guess" : "swatch" });
  square.style.backgroundColor = colour;
  return square;
}

/** Scrolls to an element that is not wholly in the window, clear of a dock at its lower edge. @param {string} id */
export function bringIntoView(id) {
  if (isNarrow()) byId("dock").classList.remove("open");
  const { top, bottom } = byId(id).getBoundingClientRect();
  const end = isNarrow() ? byId("dock").getBoundingClientRect().top : innerHeight;
  if (top < 0 || bottom > end) byId(id).scrollIntoView({ block: "start" });
}

/** Bytes as text, with the exact number for CSV. @param {number} bytes @param {string} [text] */
export function bytesCell(bytes, text = bytesText(bytes)) {
  return make("span", { "data-value": String(bytes) }, text);
}

/**
 * A table. Columns whose heads start with `#` are numbers and right-aligned.
 * @param {string} caption
 * @param {string[]} heads
 * @param {(Node | string)[][]} rows
 * @param {(index: number) => void} [choose] makes the first cell of each row a button
 */
export function makeTable(caption, heads, rows, choose) {
  const alignment = heads.map((head) => (head.startsWith("#") ? "n" : null));
  const body = rows.map((row, index) => {
    const cells = row.map((cell, at) => {
      const last = at === row.length - 1 && choose;
      const inside = last ? make("button", { class: "plain", onclick: () => choose?.(index) }, cell) : cell;
      return make("td", { class: alignment[at] }, inside);
    });
    return make("tr", {}, ...cells);
  });
  const head = heads.map((text, at) =>
    text ? make("th", { scope: "col", class: alignment[at] }, text.replace("#", "")) : make("td"),
  );
  const table = make(
    "table",
    {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...body),
  );
  const save = make("button", { class: "save", title: "save as CSV", onclick: () => saveCsv(table) }, "CSV");
  table.caption.append(" ", save);
  makeSortable(table);
  return table;
}

/** Resizes a canvas to its layout. Returns its size in screen pixels; width or height 0 if it is not visible. @param {HTMLCanvasElement} canvas @returns {[number, number, number]} width, height, and screen pixels per CSS pixel */
export function fitCanvas(canvas) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  return [width, height, ratio];
}

/** Position of the pointer in an element, from 0 to 1 in both directions. @param {any} event @param {Element} element @returns {[number, number]} */
export function pointIn(event, element) {
  const box = element.getBoundingClientRect();
  return [(event.clientX - box.left) / (box.width || 1), (event.clientY - box.top) / (box.height || 1)];
}

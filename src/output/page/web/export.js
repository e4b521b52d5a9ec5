// Saves the view as a picture, and tables as CSV.

import { byId, make, makeSvg } from "./dom.js";
import { bytesText } from "./format.js";
import { queryLabel } from "./highlight.js";
import { theme } from "./theme.js";
import { device, view } from "./view.js";

const PICTURES = ["timeline", "bands", "map", "flame"];

/** @param {string} name @param {Blob} blob */
function saveFile(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The name of a saved file. @param {string} kind */
function fileName(kind) {
  const name = device.page.title.replace(/[^\w.-]+/g, "_");
  return `${name}-${device.entryOf(view.moment) ?? "start"}.${kind}`;
}

/** Lines of text above the pictures: what the page answers, and the moment. */
function viewTitle() {
  const { allocated, reserved } = device.totals;
  const query = [queryLabel(view.query) ?? view.query, view.filter].filter(Boolean).join("; ");
  const now = `${bytesText(allocated[view.moment])} allocated of ${bytesText(reserved[view.moment])} reserved`;
  const answers = [...byId("answer").querySelectorAll("dl > div")].filter((row) => !row.querySelector("dt button"));
  return [
    document.querySelector(".head h1")?.textContent ?? "",
    ...answers.map((row) => [...row.children].map((part) => part.firstChild?.textContent).join(": ")),
    `${device.page.title}, ${device.momentText(view.moment)}: ${now}`,
    ...(query ? [`${view.only ? "only" : "highlighted"}: ${query}`] : []),
  ];
}

/** Width of a text in a saved picture. @param {string} text */
function widthOf(text) {
  const context = make("canvas").getContext("2d");
  context.font = "13px system-ui, sans-serif";
  return context.measureText(text).width;
}

/** The lines of a text in `width` pixels. @param {string} text @param {number} width */
function wrapText(text, width) {
  const lines = [""];
  for (const word of text.trim().split(/\s+/)) {
    const line = lines[lines.length - 1];
    if (line && widthOf(`${line} ${word}`) > width) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines;
}

/** The lines across a swatch of 11 pixels, by its class. @type {Record<string, string>} */
const HATCHES = {
  guess: "M0 4L4 0M0 9L9 0M3 11L11 3M8 11L11 8",
  stranded: "M0 4L4 0M0 9L9 0M3 11L11 3M8 11L11 8",
  pending: "M1 0V11M5 0V11M9 0V11",
  releasable: "M1 1H10V10H1Z",
};

/** The names, colours and hatches of the legend and of the map's key. */
function legendEntries() {
  return [...document.querySelectorAll("#legend .key, #map-section .key")].map((key) => {
    const square = key.querySelector(".swatch");
    const kind = Object.keys(HATCHES).find((name) => square?.classList.contains(name));
    const own = square ? getComputedStyle(square).backgroundColor : theme.back;
    const colour = kind && kind !== "guess" ? theme.free : own;
    const stroke = kind === "guess" ? theme.back : theme.stripe;
    return { text: key.textContent ?? "", colour, hatch: kind && HATCHES[kind], stroke };
  });
}

/** The view as an SVG document: text as text, pictures as embedded images. Names become text nodes, never markup. @returns {SVGElement} */
function viewSvg() {
  const width = byId("timeline").clientWidth || byId("map").clientWidth;
  const svg = makeSvg("svg", {});
  let y = 20;
  /** @param {string} text @param {number} x @param {string} [weight] */
  const write = (text, x, weight = "400") => {
    const font = { "font-family": "system-ui, sans-serif", "font-size": 13, "font-weight": weight };
    svg.append(makeSvg("text", { x, y, fill: theme.fore, ...font }, text));
  };
  const back = makeSvg("rect", { width: width + 16, fill: theme.back });
  svg.append(back);
  for (const [index, title] of viewTitle().entries())
    for (const line of wrapText(title, width)) {
      write(line, 8, index ? "400" : "700");
      y += 20;
    }
  let x = 8;
  for (const { text, colour, hatch, stroke } of legendEntries()) {
    const wide = 26 + widthOf(text);
    if (x + wide > width) [x, y] = [8, y + 18];
    svg.append(makeSvg("rect", { x, y: y - 10, width: 11, height: 11, fill: colour }));
    const lines = { stroke, "stroke-width": 1.5, fill: "none", transform: `translate(${x},${y - 10})` };
    if (hatch) svg.append(makeSvg("path", { d: hatch, ...lines }));
    write(text, x + 16);
    x += wide;
  }
  y += 10;
  for (const id of PICTURES) {
    const canvas = byId(id);
    if (!canvas.clientWidth || !canvas.width) continue;
    const title = canvas.closest("section")?.querySelector("h2")?.textContent;
    if (title && id !== "bands" && id !== "timeline") {
      y += 18;
      write(title, 8);
      y += 8;
    }
    const { clientWidth, clientHeight } = canvas;
    for (const layer of id === "timeline" ? [canvas, byId("overlay")] : [canvas])
      svg.append(makeSvg("image", { x: 8, y, width: clientWidth, height: clientHeight, href: layer.toDataURL() }));
    y += clientHeight + 6;
  }
  const [wide, high] = [String(width + 16), String(y + 8)];
  back.setAttribute("height", high);
  for (const [name, value] of Object.entries({ width: wide, height: high, viewBox: `0 0 ${wide} ${high}` }))
    svg.setAttribute(name, value);
  return svg;
}

/** The view as text of an SVG document. */
export function viewSvgText() {
  return new XMLSerializer().serializeToString(viewSvg());
}

function saveSvg() {
  saveFile(fileName("svg"), new Blob([viewSvgText()], { type: "image/svg+xml" }));
}

/** The view as a canvas: the SVG, painted. @returns {Promise<HTMLCanvasElement>} */
export async function viewCanvas() {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(viewSvgText())}`;
  await image.decode();
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const canvas = make("canvas", { width: image.width * ratio, height: image.height * ratio });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

async function savePng() {
  const canvas = await viewCanvas();
  canvas.toBlob((blob) => blob && saveFile(fileName("png"), blob));
}

/** A table as CSV, with bytes in full. A text that a spreadsheet would take for a formula gets an apostrophe. @param {Element} table */
export function tableCsv(table) {
  const lines = [...table.querySelectorAll("tr")].map((row) =>
    [...row.children].map((cell) => {
      const exact = cell.querySelector("[data-value]")?.getAttribute("data-value");
      if (exact) return exact;
      const text = (cell.textContent ?? "").trim();
      const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
      return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
    }),
  );
  return lines.map((cells) => `${cells.join(",")}\r\n`).join("");
}

/** @param {Element} table */
export function saveCsv(table) {
  saveFile(fileName("csv"), new Blob([tableCsv(table)], { type: "text/csv" }));
}

export function wireExport() {
  byId("save-png").addEventListener("click", savePng);
  byId("save-svg").addEventListener("click", saveSvg);
}

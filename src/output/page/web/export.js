// Saves the view as a picture, and tables as CSV.

const PICTURES = ["timeline", "bands", "map", "flame"];
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

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

/** Lines of text above the pictures. */
function viewTitle() {
  const { allocated, reserved } = device.totals;
  const query = [queryLabel(view.query) ?? view.query, view.filter].filter(Boolean).join("; ");
  return [
    `${device.page.title}, ${device.momentText(view.moment)}: ${bytesText(allocated[view.moment])} allocated of ${bytesText(reserved[view.moment])} reserved`,
    ...(query ? [`${view.only ? "only" : "highlighted"}: ${query}`] : []),
  ];
}

/** The legend's names and colours. */
function legendEntries() {
  return [...byId("legend").children].map((key) => {
    const swatch = key.querySelector(".swatch");
    const colour = swatch ? getComputedStyle(swatch).backgroundColor : theme.back;
    return { text: key.textContent ?? "", colour };
  });
}

/**
 * The view as an SVG document: text as text, pictures as embedded images. Names become text nodes, never markup.
 * @returns {SVGElement}
 */
function viewSvg() {
  const width = byId("timeline").clientWidth;
  /** @param {string} tag @param {Record<string, any>} attributes @param {string} [text] */
  const element = (tag, attributes, text = "") => {
    const one = document.createElementNS(SVG_NAMESPACE, tag);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, String(value));
    one.textContent = text;
    return one;
  };
  const svg = document.createElementNS(SVG_NAMESPACE, "svg");
  let y = 20;
  /** @param {string} text @param {number} x @param {string} colour */
  const write = (text, x, colour) =>
    svg.append(element("text", { x, y, fill: colour, "font-family": "system-ui, sans-serif", "font-size": 13 }, text));
  const back = element("rect", { width: width + 16, fill: theme.back });
  svg.append(back);
  for (const line of viewTitle()) {
    write(line, 8, theme.fore);
    y += 20;
  }
  let x = 8;
  for (const { text, colour } of legendEntries()) {
    const wide = 26 + text.length * 7;
    if (x + wide > width) [x, y] = [8, y + 18];
    svg.append(element("rect", { x, y: y - 10, width: 11, height: 11, fill: colour }));
    write(text, x + 16, theme.fore);
    x += wide;
  }
  y += 10;
  for (const id of PICTURES) {
    const canvas = byId(id);
    if (!canvas.clientWidth || !canvas.width) continue;
    const title = canvas.closest("section")?.querySelector("h2")?.textContent;
    if (title && id !== "bands" && id !== "timeline") {
      y += 18;
      write(title, 8, theme.fore);
      y += 8;
    }
    for (const layer of id === "timeline" ? [canvas, byId("overlay")] : [canvas])
      svg.append(
        element("image", { x: 8, y, width: canvas.clientWidth, height: canvas.clientHeight, href: layer.toDataURL() }),
      );
    y += canvas.clientHeight + 6;
  }
  back.setAttribute("height", String(y + 8));
  for (const [name, value] of [
    ["width", width + 16],
    ["height", y + 8],
    ["viewBox", `0 0 ${width + 16} ${y + 8}`],
  ])
    svg.setAttribute(/** @type {string} */ (name), String(value));
  return svg;
}

function saveSvg() {
  saveFile(fileName("svg"), new Blob([new XMLSerializer().serializeToString(viewSvg())], { type: "image/svg+xml" }));
}

/** The view as a canvas: the SVG, painted. @returns {Promise<HTMLCanvasElement>} */
async function viewCanvas() {
  const svg = viewSvg();
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const canvas = make("canvas", {
    width: Number(svg.getAttribute("width")) * ratio,
    height: Number(svg.getAttribute("height")) * ratio,
  });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  for (const one of svg.children) {
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(one.getAttribute(name)));
    context.fillStyle = one.getAttribute("fill") ?? "#000";
    context.font = "13px system-ui, sans-serif";
    if (one.tagName === "rect") context.fillRect(x, y, width, height);
    else if (one.tagName === "text") context.fillText(one.textContent ?? "", x, y);
    else {
      const image = new Image();
      image.src = one.getAttribute("href") ?? "";
      await image.decode();
      context.drawImage(image, x, y, width, height);
    }
  }
  return canvas;
}

async function savePng() {
  const canvas = await viewCanvas();
  canvas.toBlob((blob) => blob && saveFile(fileName("png"), blob));
}

/** A table as CSV, with bytes in full. A text that a spreadsheet would take for a formula gets an apostrophe. @param {Element} table */
function tableCsv(table) {
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
function saveCsv(table) {
  saveFile(fileName("csv"), new Blob([tableCsv(table)], { type: "text/csv" }));
}

function wireExport() {
  byId("save-png").addEventListener("click", savePng);
  byId("save-svg").addEventListener("click", saveSvg);
}

// The table of pages: one row for each device of each snapshot, the worst first, with its course and its result.

import { bytesCell, make, makeTable } from "./dom.js";
import { shortLine } from "./figures.js";
import { countOf, countText, percentText, spaced } from "./format.js";
import { parseJsonElement, showPage } from "./main.js";
import { theme } from "./theme.js";
import { view } from "./view.js";

/** @type {any[]} */
export let pages = [];

/** @param {any[]} rows */
export function setPages(rows) {
  pages = rows;
}

/** Devices from which on the list has a field that narrows it. */
const MANY_PAGES = 9;

export function pagesTitle() {
  const order = parseJsonElement("compared") ? "in the order given" : "the worst first";
  return `${countText(pages.length)} devices, ${order}`;
}

/** A field that keeps the devices with a text in their row. @param {any} table */
function pagesFilter(table) {
  const label = "devices whose row contains";
  const field = make("input", { type: "search", id: "pages-filter", placeholder: label, "aria-label": label });
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  return field;
}

/** The result on a page's device. @param {any} page */
function pageResult({ result, failures }) {
  if (!result && !failures) return make("span", { class: "muted" }, "no failure");
  const count = failures > 1 ? `, ${countOf(failures, "failure")}` : "";
  return make("b", { class: "bad" }, spaced(result ?? "failed") + count);
}

/** The table of devices, below a field if it is long. @returns {Element[]} */
export function pagesList() {
  const isFailed = pages.some((page) => page.failures);
  const rows = pages.map((page, index) => {
    const canvas = make("canvas", { width: 112, height: 20, "aria-hidden": "true" });
    const name = make("button", { class: "page plain", "data-page": index, title: page.title }, page.title);
    const { capacity_bytes: capacity, peak_reserved_bytes: reserved } = page;
    const line = make("span", { class: "mono", title: page.line ?? "" }, shortLine(page.line ?? ""));
    const requested = page.requested_bytes ? bytesCell(page.requested_bytes) : "";
    const failed = isFailed ? [pageResult(page), line, requested] : [];
    const share = capacity ? percentText(reserved, capacity) : "";
    return [name, canvas, ...failed, bytesCell(page.peak_allocated_bytes), bytesCell(reserved), share];
  });
  const failure = isFailed ? ["result", "at", "#requested"] : [];
  const heads = ["device", "", ...failure, "#peak allocated", "#peak reserved", "#of device"];
  const table = makeTable("", heads, rows);
  table.tBodies[0].addEventListener("click", (/** @type {any} */ event) => {
    const page = event.target.closest("tr")?.querySelector(".page")?.dataset.page;
    if (page) showPage(Number(page), { axis: view.axis });
  });
  const list = make("div", { class: "pages scroll" }, table);
  return pages.length < MANY_PAGES ? [list] : [pagesFilter(table), list];
}

/** Draws a page's reserved and allocated memory. @param {any} canvas @param {any} page @param {number} maxBytes at the top */
function drawSparkline(canvas, page, maxBytes) {
  if (!page.course) return;
  const context = canvas.getContext("2d");
  const { scale_bytes: scale, reserved, allocated } = page.course;
  const wide = canvas.width / (reserved.length || 1);
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (const values of [reserved, allocated]) {
    context.globalAlpha = values === reserved ? 0.4 : 1;
    context.fillStyle = values === reserved ? theme.muted : theme.accent;
    values.forEach((/** @type {number} */ value, /** @type {number} */ at) => {
      const high = (((value / 1000) * scale) / maxBytes) * canvas.height;
      context.fillRect(at * wide, canvas.height - high, wide, high);
    });
  }
}

export function drawPages() {
  const maxBytes = pages.reduce((top, page) => Math.max(top, page.course?.scale_bytes || page.peak_reserved_bytes), 1);
  for (const button of document.querySelectorAll(".page")) {
    const index = Number(button.getAttribute("data-page"));
    const row = /** @type {Element} */ (button.closest("tr"));
    button.setAttribute("aria-current", String(index === view.page));
    row.classList.toggle("chosen", index === view.page);
    drawSparkline(row.querySelector("canvas"), pages[index], maxBytes);
  }
}

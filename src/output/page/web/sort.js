// Sorts the rows of a table by the column whose head is clicked.

import { make } from "./dom.js";

/** @type {Record<string, number>} */
const UNIT_FACTORS = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** The value of a cell: exact bytes, a number with its unit, else its text. @param {Element} cell @returns {number | string} */
function sortValue(cell) {
  const text = (cell.textContent ?? "").trim();
  const exact = cell.querySelector("[data-value]")?.getAttribute("data-value");
  if (exact) return Number(exact);
  const [, number, unit] = /^<?([+-]?[\d,]*\.?\d+) ?([KMGT]?i?B)?/.exec(text) ?? [];
  if (number === undefined || !/^(n|number)$/.test(cell.className)) return text;
  return Number(number.replace(/,/g, "")) * /** @type {any} */ (UNIT_FACTORS[unit] ?? 1);
}

/** @param {any} table @param {number} column @param {number} direction 1 or -1 */
function sortRows(table, column, direction) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, value: sortValue(row.cells[column]) }));
  // A cell without a number comes last.
  const isText = rows.every(({ value }) => typeof value === "string");
  const compare = (/** @type {any} */ a, /** @type {any} */ b) =>
    isText ? a.localeCompare(b) : (typeof a === "number" ? a : -Infinity) - (typeof b === "number" ? b : -Infinity);
  body.append(...rows.sort((a, b) => direction * compare(a.value, b.value)).map(({ row }) => row));
}

/** Makes each head of a table a button that sorts by its column, numbers largest first. @param {any} table */
export function makeSortable(table) {
  for (const head of table.tHead?.rows[0].cells ?? []) {
    if (!head.textContent || head.querySelector("button")) continue;
    const isNumber = /^(n|number)$/.test(head.className);
    const sort = () => {
      const direction = head.ariaSort ? (head.ariaSort === "ascending" ? -1 : 1) : isNumber ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.ariaSort = direction > 0 ? "ascending" : "descending";
      sortRows(table, head.cellIndex, direction);
    };
    const button = make("button", { class: "plain sort", onclick: sort });
    button.append(...head.childNodes);
    head.append(button);
  }
}

// The filter: properties that the allocations of a search must have. It is one text, such as
// `category=activations;min=1048576`, so that a link can contain it.

import { byId, make } from "./dom.js";
import { bytesText, spaced } from "./format.js";
import { showPage } from "./main.js";
import { poolName } from "./map.js";
import { pages } from "./pages.js";
import { device, setFilter, view } from "./view.js";
/** @import { Device } from "./device.js" */

/** The properties that a filter can name, in the order of the form. */
const FILTER_CHOICES = ["category", "stream", "pool", "confidence"];
const FILTER_NUMBERS = ["min", "max", "lives", "dies"];
export const CONFIDENCES = ["high", "medium", "low", "known"];

/** @param {string} text @returns {Map<string, string>} */
function parseFilter(text) {
  const known = [...FILTER_CHOICES, ...FILTER_NUMBERS];
  const parts = text.split(";").map((part) => /** @type {[string, string]} */ (part.split("=", 2)));
  return new Map(parts.filter(([name, value]) => known.includes(name) && value));
}

/** @param {Map<string, string>} filter */
function filterText(filter) {
  return [...filter].map(([name, value]) => `${name}=${value}`).join(";");
}

/** Bytes of `52MiB`, `1.5 g`, `4096`; null if it is no size. @param {string} text */
function parseSize(text) {
  const found = /^\s*([\d.]+)\s*([kmgt]?)(i?b)?\s*$/i.exec(text);
  if (!found || !Number.isFinite(Number(found[1]))) return null;
  return Number(found[1]) * 1024 ** " kmgt".indexOf(found[2].toLowerCase() || " ");
}

/** The names that a property can have on this device. @param {Device} of @param {string} name @returns {string[]} */
function filterNames({ data }, name) {
  if (name === "category") return data.header.categories.map(spaced);
  if (name === "stream") return data.header.streams;
  return name === "pool" ? data.header.pools : CONFIDENCES;
}

/** Whether each allocation passes; null if the filter names nothing. @param {Device} of @param {string} text @returns {Uint8Array | null} */
export function passing(of, text) {
  const filter = parseFilter(text);
  if (!filter.size) return null;
  const { data } = of;
  const kinds = new Uint8Array(data.kinds).fill(1);
  for (const name of FILTER_CHOICES) {
    const value = filter.get(name);
    if (value === undefined) continue;
    const wanted = filterNames(of, name).indexOf(value);
    const column = /** @type {any} */ (data)[name];
    for (let kind = 0; kind < kinds.length; kind += 1) if (column[kind] !== wanted) kinds[kind] = 0;
  }
  const [min, max, lives, dies] = FILTER_NUMBERS.map((name) => Number(filter.get(name) ?? NaN));
  const result = new Uint8Array(data.allocations);
  for (let row = 0; row < result.length; row += 1) {
    const lived = Math.min(data.freedAt[row], data.entries + 1) - data.allocatedAt[row];
    const bytes = data.bytes[row];
    result[row] = kinds[data.kind[row]] && !(bytes < min || bytes > max || lived < lives || lived > dies) ? 1 : 0;
  }
  return result;
}

/** The properties that all memory shares, of which there is nothing to choose. */
function sharedText() {
  const { streams, pools } = device.data.header;
  const same = [
    ...(pages.length === 1 ? [`GPU ${device.data.header.device}`] : []),
    ...(streams.length === 1 ? [`stream ${streams[0]}`] : []),
    ...(pools.length === 1 ? [poolName(device.data, 0)] : []),
  ];
  return same.length ? `All memory here is of ${same.join(", ")}.` : "";
}

/** Fills the form with the device's names and the filter's values. */
export function drawFilter() {
  const filter = parseFilter(view.filter);
  byId("filter-note").textContent = sharedText();
  byId("filter-device").value = String(view.page);
  for (const field of /** @type {any} */ (document.querySelectorAll("[data-filter]"))) {
    const name = field.getAttribute("data-filter");
    const value = filter.get(name) ?? "";
    if (field.tagName === "SELECT") {
      const names = filterNames(device, name);
      field.replaceChildren(...["", ...names].map((one) => make("option", { value: one }, one || "any")));
      field.parentElement.hidden = names.length < 2;
      field.value = value;
    } else if (document.activeElement !== field) {
      field.value = value && name.startsWith("m") ? bytesText(Number(value)) : value;
    }
  }
}

export function wireFilter() {
  byId("filter-device-label").hidden = pages.length < 2;
  const choice = byId("filter-device");
  choice.append(...pages.map(({ title }, page) => make("option", { value: page }, title)));
  choice.addEventListener("change", () => {
    const { filter, query, axis } = view;
    showPage(Number(choice.value), { filter, query, axis, pane: "search" });
  });
  for (const field of /** @type {any} */ (document.querySelectorAll("[data-filter]"))) {
    field.addEventListener("change", () => {
      const name = field.getAttribute("data-filter");
      const filter = parseFilter(view.filter);
      const value = FILTER_NUMBERS.includes(name) ? (parseSize(field.value)?.toString() ?? "") : field.value;
      if (value) filter.set(name, value);
      else filter.delete(name);
      setFilter(filterText(filter));
    });
  }
}

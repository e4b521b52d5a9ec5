// The slider of the capacity: a logarithmic scale around what the program needs, with the marks of known GPUs.

import { byId, make } from "../dom.js";
import { bytesText } from "../format.js";

export const CAPACITY_STEPS = 1000;
/** Pixels that a mark takes. */
const MARK_WIDTH = 84;
const CAPACITY_STEP_BYTES = 2 * 2 ** 20;

/** The ends of the slider, in bytes: from half of what no setting can do without to the next larger GPU. @param {any} offer @returns {[number, number]} */
export function capacityRange(offer) {
  const peak = Math.max(offer.recorded.peak_reserved_bytes, offer.lower_bound_bytes, CAPACITY_STEP_BYTES);
  const known = offer.capacity_bytes ?? peak;
  const larger = Object.values(offer.gpus)
    .filter((bytes) => bytes > Math.max(known, peak) * 1.05)
    .sort((one, other) => one - other);
  const low = Math.max(CAPACITY_STEP_BYTES, Math.min(offer.lower_bound_bytes, known) / 2);
  return [low, Math.max(2 * peak, 1.25 * known, 1.02 * (larger[0] ?? 0))];
}

/** @param {number} bytes @param {[number, number]} range @returns {number} 0 to 1 */
export function capacityPlace(bytes, [low, high]) {
  return Math.max(0, Math.min(1, Math.log(bytes / low) / Math.log(high / low)));
}

/** A size as a user would type it, such as `23.5GiB`. @param {number} step of the slider @param {[number, number]} range */
export function capacityText(step, [low, high]) {
  const bytes = low * (high / low) ** (step / CAPACITY_STEPS);
  const rounded = Math.max(1, Math.round(bytes / CAPACITY_STEP_BYTES)) * CAPACITY_STEP_BYTES;
  return bytesText(rounded).replace(" ", "");
}

/** Marks below the slider: GPUs, and what the program needs. @param {any} offer @param {(name: string) => void} choose */
export function capacityMarks(offer, choose) {
  const range = capacityRange(offer);
  const near = MARK_WIDTH / Math.max(MARK_WIDTH, byId("replay-marks").clientWidth);
  /** @type {[number, string[]][]} */
  const groups = [];
  const gpus = Object.entries(offer.gpus).sort((one, other) => one[1] - other[1]);
  for (const [name, bytes] of gpus) {
    if (bytes < range[0] || bytes > range[1]) continue;
    const place = capacityPlace(bytes, range);
    const last = groups.at(-1);
    // Marks that would cover each other share one.
    if (last && place - last[0] < near) last[1].push(name);
    else groups.push([place, [name]]);
  }
  const marks = groups.map(([place, names]) => {
    const text = names.length > 1 ? `${names[0]} +${names.length - 1}` : names[0];
    const title = names.map((name) => `${name}: ${bytesText(offer.gpus[name])} for PyTorch`).join("\n");
    const mark = make("button", { type: "button", class: "mark", title, onclick: () => choose(names[0]) }, text);
    mark.style.left = `${100 * place}%`;
    // Within the slider at both ends.
    mark.style.transform = `translateX(${-100 * place}%)`;
    return mark;
  });
  /** @param {string} kind @param {string} text @param {number} bytes */
  const line = (kind, text, bytes) => {
    const element = make("i", { class: kind, title: `${text}: ${bytesText(bytes)}` });
    element.style.left = `${100 * capacityPlace(bytes, range)}%`;
    return element;
  };
  const bound = line("bound", "live at once", offer.lower_bound_bytes);
  return [bound, line("peak", "reserved at the peak, as recorded", offer.recorded.peak_reserved_bytes), ...marks];
}

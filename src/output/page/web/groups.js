// The groups of allocations that share a colour: by category, by line of code, or by the variable that keeps them.

import { CONFIDENCES } from "./filter.js";
import { countText, spaced } from "./format.js";
/** @import { Columns } from "./columns.js" */
/** @import { Device } from "./device.js" */

/**
 * @typedef {object} Groups
 * @property {string[]} names
 * @property {Uint32Array} groupOfKind group of each kind
 * @property {string[]} colours
 * @property {boolean[]} [isGuess] whether each group is a guess, and so hatched
 * @property {string} prefix of the query that highlights a group
 * @property {boolean[]} isUsed whether any allocation is in the group
 */

/** @type {Record<string, string>} */
export const CATEGORY_COLOURS = {
  parameters: "#54bcfe",
  "optimizer-state": "#a165da",
  gradients: "#faba2c",
  activations: "#46897f",
  "kv-cache": "#3010f0",
  communication: "#961c93",
  inputs: "#605b1e",
  temporaries: "#cd8507",
  other: "#a8ae99",
};
export const LINE_COLOURS = [
  ..."#4e79a7 #f28e2c #59a14f #b07aa1 #e15759 #76b7b2 #edc949 #ff9da7 #9c755f #86bcb6".split(" "),
  ..."#d4a6c8 #8cd17d #499894 #f1ce63 #d37295 #a0cbe8 #ffbe7d #b6992d #fabfd2 #79706e".split(" "),
];
/** The colour of a line, a variable or a place. @param {number} at */
export function lineColour(at) {
  return LINE_COLOURS[at % LINE_COLOURS.length];
}

/** Number of lines or variables with a band of their own in the timeline. The others share the last band. */
export const MAX_LINES = 63;

/** Whether each group has an allocation. @param {string[]} names @param {Iterable<number>} ofAllocations the groups of some */
export function usedGroups(names, ofAllocations) {
  const used = new Set(ofAllocations);
  return names.map((_, group) => used.has(group));
}

/** The category of a kind of allocation. @param {Columns} data @param {number} kind */
export function categoryName(data, kind) {
  return spaced(data.header.categories[data.category[kind]]);
}

/** Two groups for each category: what is known, and above it what is a guess. @param {Device} device @returns {Groups} */
export function groupsByCategory({ data }) {
  /** @type {string[]} */
  const categories = data.header.categories;
  const low = CONFIDENCES.indexOf("low");
  // No category is no guess.
  const isGuessed = data.confidence.map((one, kind) =>
    one === low && categories[data.category[kind]] !== "other" ? 1 : 0,
  );
  const groupOfKind = data.category.map((category, kind) => 2 * category + isGuessed[kind]);
  const names = categories.map(spaced).flatMap((name) => [name, `${name} (a guess)`]);
  const colours = categories.map((name, at) => CATEGORY_COLOURS[name] || lineColour(at));
  return {
    names,
    groupOfKind,
    colours: colours.flatMap((colour) => [colour, colour]),
    isGuess: names.map((_, group) => group % 2 > 0),
    prefix: "category:",
    isUsed: usedGroups(names, groupOfKind),
  };
}

/** The lines with most memory at the peak and over the whole trace. @param {Device} device @returns {Groups} */
export function groupsByLine({ data, stacks, sweep, totals }) {
  const weight = new Float64Array(stacks.lines);
  /** @param {Uint32Array} rows @param {number} share */
  const weigh = (rows, share) => {
    for (const row of rows) weight[stacks.lineOfKind[data.kind[row]]] += data.bytes[row] * share;
  };
  weigh(sweep.live(totals.peak), 1);
  for (const rows of sweep.keyframes) weigh(rows, 1 / sweep.keyframes.length);
  const order = Array.from(weight.keys()).sort((a, b) => weight[b] - weight[a] || a - b);
  const group = new Uint32Array(stacks.lines);
  order.forEach((line, rank) => (group[line] = Math.min(rank, MAX_LINES)));
  const names = order.slice(0, MAX_LINES).map((line) => stacks.lineLabel(line));
  if (order.length > MAX_LINES) names.push(`${countText(order.length - MAX_LINES)} other lines`);
  const groupOfKind = stacks.lineOfKind.map((line) => group[line]);
  return {
    names,
    groupOfKind,
    colours: names.map((_, at) => (at === MAX_LINES ? CATEGORY_COLOURS.other : lineColour(at))),
    prefix: "line:",
    isUsed: usedGroups(names, groupOfKind),
  };
}

/** The variables that keep most at the snapshot; null if the recorder named none. @param {Device} device @returns {Groups | null} */
export function groupsByVariable({ data }) {
  /** @type {{name: string}[]} */
  const variables = data.header.variables ?? [];
  if (!variables.length) return null;
  // The first row, which is memory freed before the snapshot, lies on top of the others.
  const shown = Math.min(variables.length - 1, MAX_LINES);
  const names = variables.slice(1, shown + 1).map(({ name }) => name);
  const others = variables.length - 1 - shown;
  if (others) names.push(`${countText(others)} other variables`);
  names.push(variables[0].name);
  const last = names.length - 1;
  const groupOfKind = data.variable.map((variable) => (variable ? Math.min(variable - 1, MAX_LINES) : last));
  return {
    names,
    groupOfKind,
    colours: names.map((_, at) => (at >= shown ? CATEGORY_COLOURS.other : lineColour(at))),
    prefix: "variable:",
    isUsed: usedGroups(names, groupOfKind),
  };
}

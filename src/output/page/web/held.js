// The holders of the result: the rows of its table, and the blocks behind them.

import { groups } from "./colours.js";
import { isLive } from "./compare.js";
import { frameText } from "./format.js";
import { CATEGORY_COLOURS } from "./groups.js";
import { variablesWith } from "./highlight.js";
import { device } from "./view.js";
/** @import { Device } from "./device.js" */

/** The holders in the result of a device, in the order of its table. @param {Device} of @returns {any[]} */
function heldRows({ analysis }) {
  const held = analysis.at_moment ?? analysis.ooms.at(-1)?.held ?? analysis.at_peak;
  return held?.by_variable?.length ? held.by_variable : (held?.by_line.rows ?? analysis.top_lines);
}

/** Whether each kind of allocation belongs to a holder. @param {Device} of @param {number} at */
function kindsOfHolder(of, at) {
  const { data, stacks } = of;
  const holder = heldRows(of)[at];
  if (!holder) return new Uint8Array(data.kinds);
  const name = holder.container?.name ?? holder.name;
  const isOf = (/** @type {string} */ one) =>
    one === name || (one.startsWith(name) && /^[[.]/.test(one.slice(name.length)));
  const isOfVariable = name && variablesWith(data, isOf);
  const lines = new Set(data.header.held_lines[at]);
  const category = holder.category ? data.header.categories.indexOf(holder.category) : -1;
  return Uint8Array.from({ length: data.kinds }, (_, kind) => {
    const isHeld = isOfVariable ? isOfVariable[data.variable[kind]] : lines.has(stacks.lineOfKind[kind]);
    return isHeld && (category < 0 || data.category[kind] === category) ? 1 : 0;
  });
}

/** Whether each allocation belongs to a holder of the result and is live then. @param {Device} of @param {number} at */
export function heldBlocks(of, at) {
  const kinds = kindsOfHolder(of, at);
  const m = of.firstMoment();
  return Uint8Array.from({ length: of.data.allocations }, (_, row) =>
    kinds[of.data.kind[row]] && isLive(of.data, row, m) ? 1 : 0,
  );
}

/** The colour that the pictures give to a holder. @param {number} at */
export function heldColour(at) {
  const kinds = kindsOfHolder(device, at);
  return groups.colours[groups.groupOfKind[kinds.indexOf(1)]] ?? CATEGORY_COLOURS.other;
}

/** A holder in a few words. @param {number} at */
export function heldText(at) {
  const { name, container, frame, allocated_by: line } = heldRows(device)[at] ?? {};
  const place = frame ?? line?.frame;
  return container?.name ?? name ?? (place ? frameText(place) : "no line");
}

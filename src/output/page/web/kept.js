// The lines that keep memory after every step: what shows a growth.

import { isLive } from "./compare.js";
import { byId, bytesCell, make, makeTable } from "./dom.js";
import { bytesText, countOf, countText, frameText } from "./format.js";
import { device, queryButton, setQuery } from "./view.js";
/** @import { Device } from "./device.js" */

/** Maximum number of lines. */
const KEPT_LINES = 5;
/** The query of the blocks that they keep; with an index, of one line. */
export const KEPT = "kept:";

/** The lines that hold more after every step, most first. @param {Device} of @returns {any[]} */
export function keepingLines(of) {
  return of.data.header.proof === "kept" ? of.analysis.leaks.suspects : [];
}

/** Whether each kind of allocation is of a line. @param {Device} of @param {any} line of the analysis */
function kindsOfLine({ data, stacks }, { frame, called_from: caller }) {
  /** @param {any} one @param {number} row 1 + a frame's, or 0 */
  const isFrame = (one, row) =>
    (one ? `${one.file}:${one.line} ${one.name}` : "") === (row ? stacks.frameText(row - 1) : "");
  const isLine = Array.from(
    stacks.lineFrame,
    (row, line) => isFrame(frame, row) && isFrame(caller, stacks.lineCaller[line]),
  );
  return Uint8Array.from({ length: data.kinds }, (_, kind) => (isLine[stacks.lineOfKind[kind]] ? 1 : 0));
}

/** The line that a query such as `kept:2` means, or -1 for `kept:`, which means all; null for any other query. @param {string} query */
export function keptQuery(query) {
  const kept = /^kept:(\d*)$/.exec(query);
  return kept && (kept[1] ? Number(kept[1]) : -1);
}

/** Whether each allocation is of a line, or of any, and kept: of those live at the end, the oldest. @param {Device} of @param {number} only */
export function keptRows(of, only) {
  const { data } = of;
  const result = new Uint8Array(data.allocations);
  const end = of.lastFailure()?.moment ?? data.entries;
  for (const line of keepingLines(of).filter((_, at) => only < 0 || at === only)) {
    const kinds = kindsOfLine(of, line);
    let { blocks } = line;
    for (let row = 0; row < result.length && blocks; row += 1) {
      if (!kinds[data.kind[row]] || !isLive(data, row, end)) continue;
      result[row] = 1;
      blocks -= 1;
    }
  }
  return result;
}

/** @param {any} line */
export function keptLineText({ frame }) {
  return frame ? frameText(frame) : "no stack recorded";
}

export function drawKept() {
  const lines = keepingLines(device);
  byId("kept-section").hidden = !lines.length;
  if (!lines.length) return;
  const { bytes_per_step: rate, steps_left } = device.analysis.leaks;
  const left = device.analysis.ooms.length ? null : steps_left;
  const most = lines[0].bytes;
  const rows = lines.slice(0, KEPT_LINES).map((line) => {
    const bar = make("i", { class: "share" });
    bar.style.width = `${Math.round((90 * line.bytes) / most)}px`;
    return [bytesCell(line.bytes_per_step), bytesCell(line.bytes), bar, countText(line.steps), keptLineText(line)];
  });
  const rest = lines.length - rows.length + device.analysis.leaks.other_suspects;
  const ends = left ? `, room for ${countOf(left, "more step")}` : "";
  const more = rest ? `; ${countOf(rest, "other line")} less` : "";
  const caption = `${bytesText(rate)} more after every step${ends}${more}`;
  const table = makeTable(caption, ["#a step", "#in all", "", "#steps", "line"], rows, (at) => setQuery(KEPT + at));
  table.caption.append(" ", queryButton(KEPT, {}, "highlight"));
  byId("kept").replaceChildren(table);
}

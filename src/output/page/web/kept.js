// The lines that keep memory after every step: what shows a growth.

/** Maximum number of lines. */
const KEPT_LINES = 5;
/** The query of the blocks that they keep. */
const KEPT = "kept:";

/** The lines that hold more after every step, most first. @param {Device} of @returns {any[]} */
function keepingLines(of) {
  return of.data.header.proof === "kept" ? of.analysis.leaks.suspects : [];
}

/** Whether each kind of allocation is of a line. @param {Device} of @param {any} line of the analysis */
function kindsOfLine({ data, stacks }, { frame, called_from: caller }) {
  const wanted = frame ? `${frame.file}:${frame.line} ${frame.name}` : "";
  const end = caller ? `:${caller.line} in ${caller.name})` : "";
  const isLine = new Uint8Array(stacks.lines);
  for (let line = 0; line < stacks.lines; line += 1) {
    const at = stacks.lineFrame[line] - 1;
    isLine[line] = (at < 0 ? "" : stacks.frameText(at)) === wanted && stacks.lineLabel(line).endsWith(end) ? 1 : 0;
  }
  return Uint8Array.from({ length: data.kinds }, (_, kind) => isLine[stacks.lineOfKind[kind]]);
}

/** Whether each allocation is of such a line, and kept: of those live at the end, the oldest. @param {Device} of */
function keptRows(of) {
  const { data } = of;
  const result = new Uint8Array(data.allocations);
  const end = of.lastFailure()?.moment ?? data.entries;
  for (const line of keepingLines(of)) {
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

function drawKept() {
  const lines = keepingLines(device);
  byId("kept-section").hidden = !lines.length;
  if (!lines.length) return;
  const { bytes_per_step: rate, steps_left: left } = device.analysis.leaks;
  const most = lines[0].bytes;
  const rows = lines.slice(0, KEPT_LINES).map((line) => {
    const bar = make("i", { class: "share" });
    bar.style.width = `${Math.round((90 * line.bytes) / most)}px`;
    const where = line.frame ? `${shortPath(line.frame.file)}:${line.frame.line} in ${line.frame.name}` : "no stack";
    return [bytesCell(line.bytes_per_step), bytesCell(line.bytes), bar, countText(line.steps), where];
  });
  const rest = lines.length - rows.length + device.analysis.leaks.other_suspects;
  const ends = left ? `, room for ${countOf(left, "more step")}` : "";
  const more = rest ? `; ${countOf(rest, "other line")} less` : "";
  const caption = `${bytesText(rate)} more after every step${ends}${more}`;
  const table = makeTable(caption, ["#a step", "#in all", "", "#steps", "line"], rows, (at) => showKept(lines[at]));
  const isOn = view.query === KEPT;
  const button = make("button", { "aria-pressed": String(isOn), onclick: () => setQuery(isOn ? "" : KEPT) }, "highlight");
  table.caption.append(" ", button);
  byId("kept").replaceChildren(table);
}

/** Highlights and lists what a line holds. @param {any} line */
function showKept(line) {
  const kinds = kindsOfLine(device, line);
  const kind = kinds.indexOf(1);
  if (kind < 0) return;
  setQuery(`line:${device.stacks.lineLabel(device.stacks.lineOfKind[kind])}`);
  showPane("search");
}

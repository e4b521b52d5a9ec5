// One allocation in words, and the tip that follows the pointer.

/** @param {number} row @param {number} most frames */
function allocationText(row, most) {
  const { data, stacks, groups: by } = device;
  const kind = data.kind[row];
  const requested = data.requested[kind];
  const lines = [
    `${bytesText(data.bytes[row])}${requested === data.bytes[row] ? "" : `, ${countText(requested)} bytes requested`}: ${by.category.names[data.category[kind]]}, ${placeText(data.pool[kind], data.stream[kind])}`,
  ];
  lines.push(lifeText(row));
  const frames = stacks.toldFrames(data.node[kind]);
  if (!frames.length) lines.push("no stack recorded");
  for (const frame of frames.slice(0, most))
    lines.push(`${stacks.isUsers(frame) ? "▸ " : "   "}${stacks.frameText(frame)}`);
  if (frames.length > most) lines.push(`   and ${countOf(frames.length - most, "more frame")}`);
  return lines.join("\n");
}

/** From when to when. @param {number} row */
function lifeText(row) {
  const { start, req, done, entries } = device.data;
  const begins = start[row]
    ? `allocated at entry ${countText(device.entryOf(start[row]) ?? 0)}`
    : "from before the first entry";
  if (req[row] > entries) return `${begins}, held to the end`;
  const ends = `${begins}, freed at entry ${countText(device.entryOf(req[row]) ?? 0)}, ${countText(req[row] - start[row])} entries later`;
  if (done[row] > entries) return `${ends}; its memory still waits for another stream`;
  return done[row] > req[row] + 1
    ? `${ends}; its memory waited for another stream until entry ${countText(device.entryOf(done[row]) ?? 0)}`
    : ends;
}

function drawSelection() {
  const body = byId("selection");
  const row = view.sel;
  if (row < 0) {
    body.replaceChildren(
      make(
        "p",
        { class: "muted" },
        "Click an allocation in the timeline (“each allocation”), in the address map or in the table.",
      ),
    );
    return;
  }
  const { data, stacks } = device;
  const kind = data.kind[row];
  const [size, life] = allocationText(row, 0).split("\n");
  /** @param {string} text @param {() => void} does */
  const button = (text, does) => make("button", { onclick: does }, text);
  body.replaceChildren(
    make("p", {}, make("b", {}, size)),
    make("p", {}, `${life}; at ${data.address(data.addr[row]) ?? "an unknown address"}`),
    make(
      "p",
      { class: "bar" },
      button("when allocated", () => setMoment(data.start[row])),
      button("when freed", () => setMoment(Math.min(data.entries, data.req[row]))),
      button("zoom to its life", () => setZoom(data.start[row] - 20, Math.min(data.entries + 1, data.done[row]) + 20)),
      button("light its line", () => setQuery(`line:${stacks.textOfLine(stacks.lineOfKind[kind])}`)),
      button("unselect", () => select(-1)),
    ),
    ...stackOf(data.node[kind]),
  );
}

/** The frames of a stack, innermost first; the interpreter's and native ones folded. @param {number} node @returns {Node[]} */
function stackOf(node) {
  const { stacks } = device;
  const whole = stacks.framesOf(node);
  if (!whole.length) return [make("p", { class: "muted" }, "no stack recorded")];
  /** @param {number[]} frames */
  const list = (frames) =>
    make(
      "ol",
      { class: "stack" },
      ...frames.map((frame) => make("li", { class: stacks.isUsers(frame) ? "own" : null }, stacks.frameText(frame))),
    );
  const told = stacks.toldFrames(node);
  if (told.length === whole.length) return [list(whole)];
  return [list(told), make("details", {}, make("summary", {}, `all ${whole.length} frames`), list(whole))];
}

/** @param {any} event where, or null to hide @param {string} text */
function showTip(event, text) {
  const tip = byId("tip");
  tip.hidden = !event || !text;
  if (tip.hidden) return;
  tip.textContent = text;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
  const below = event.clientY + 16 + tip.offsetHeight < window.innerHeight;
  tip.style.top = `${below ? event.clientY + 16 : Math.max(4, event.clientY - 12 - tip.offsetHeight)}px`;
}

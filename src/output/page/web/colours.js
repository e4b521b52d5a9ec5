// The colour of each allocation in every picture.

/** Groups that the pictures are coloured by. @type {Groups} */
let groups;
/** Pixels by allocation. */
let rowPixels = new Uint32Array(0);
/** Pixels by group; and the same where something else is lit. @type {Uint32Array} */
let groupPixels = new Uint32Array(0);
/** @type {Uint32Array} */
let dimPixels = new Uint32Array(0);
/** @type {Record<string, number>} */
let pixels = {};

/** Works the colours out again: after a change of theme, of mode, or of what is lit. */
function recolour() {
  pixels = Object.fromEntries(Object.entries(theme).map(([name, colour]) => [name, pixelOf(colour)]));
  groups = view.mode === "category" ? device.groups.category : device.groups.line;
  groupPixels = Uint32Array.from(groups.colours, pixelOf);
  dimPixels = groupPixels.map((pixel) => mix(mix(pixel, pixels.muted, 0.6), pixels.back, 0.75));
  const { kind, allocations } = device.data;
  // Neighbours of one group are told apart by their shade.
  const shades = [0, 0.1, 0.05, 0.15];
  const bright = shades.map((share) => groupPixels.map((pixel) => mix(pixel, pixels.back, share)));
  // Lines that share a band have colours of their own here, paler.
  const { lineOfKind } = device.stacks;
  const pale = LINE_COLOURS.map((colour) => mix(pixelOf(colour), pixels.muted, 0.5));
  rowPixels = new Uint32Array(allocations);
  for (let row = 0; row < allocations; row += 1) {
    const group = groups.of[kind[row]];
    if (lit && !lit[row]) rowPixels[row] = dimPixels[group];
    else if (view.mode !== "category" && group === MOST_LINES)
      rowPixels[row] = pale[lineOfKind[kind[row]] % pale.length];
    else rowPixels[row] = bright[row & 3][group];
  }
}

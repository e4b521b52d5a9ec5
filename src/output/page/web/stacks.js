// Whose code: a tree of stacks (the root's children are outermost), the frames, and the line that names a stack in a table.

class Stacks {
  /** @param {{header: any, column: (name: string) => Uint8Array}} packed */
  constructor({ header, column }) {
    const { nodes, frames } = header;
    /** @param {string} name @param {number} count */
    const small = (name, count) => varints(column(name), new Uint32Array(count));
    /** @type {string[]} */
    this.strings = JSON.parse(new TextDecoder().decode(column("strings")) || "[]");
    this.nodes = nodes;
    this.parent = small("nparent", nodes).map((distance, node) => node - distance);
    /** Frame + 1 of each node; 0 is the root. */
    this.frame = small("nframe", nodes);
    this.file = small("ffile", frames);
    this.line = small("fline", frames);
    this.name = small("fname", frames);
    this.origin = small("forigin", frames);
    this.frames = frames;
    /** For each node, whether a frame nearer to the allocation is the user's. */
    this.hasUsersBelow = new Uint8Array(nodes);
    for (let node = nodes - 1; node > 0; node -= 1) {
      if (this.isUsers(this.frame[node] - 1) || this.hasUsersBelow[node]) this.hasUsersBelow[this.parent[node]] = 1;
    }
    const lines = header.lines || 0;
    this.lines = lines;
    this.lineFrame = small("lline", lines);
    this.lineText = small("ltext", lines);
    this.lineOfKind = small("kline", header.kinds);
  }

  /** The frames of a stack, innermost first. @param {number} node */
  framesOf(node) {
    const frames = [];
    for (let at = node; at > 0; at = this.parent[at]) frames.push(this.frame[at] - 1);
    return frames;
  }

  /** Is it the user's, or a package's, and not PyTorch's? @param {number} frame */
  isUsers(frame) {
    return this.origin[frame] < 2;
  }

  /** The same without the interpreter's and native frames; all of them where there are no others. @param {number} node */
  toldFrames(node) {
    const frames = this.framesOf(node);
    const told = frames.filter((frame) => this.origin[frame] <= 2);
    return told.length ? told : frames;
  }

  /** Is it PyTorch's Python code, and not what lies around every call? @param {number} frame */
  isTorch(frame) {
    return this.origin[frame] === 2;
  }

  /** `file:line name`. @param {number} frame */
  frameText(frame) {
    return `${this.strings[this.file[frame]]}:${this.line[frame]} ${this.strings[this.name[frame]]}`;
  }

  /** The same with a short path. @param {number} frame */
  shortText(frame) {
    return `${shortPath(this.strings[this.file[frame]])}:${this.line[frame]} ${this.strings[this.name[frame]]}`;
  }

  /** A line in the words of `analyze`. @param {number} line */
  textOfLine(line) {
    return this.strings[this.lineText[line]];
  }

  /** For each node, whether a frame of its stack contains the words. @param {string} words */
  nodesWith(words) {
    const wanted = words.toLowerCase();
    const hit = new Uint8Array(this.frames);
    for (let frame = 0; frame < this.frames; frame += 1)
      hit[frame] = this.frameText(frame).toLowerCase().includes(wanted) ? 1 : 0;
    const nodes = new Uint8Array(this.nodes);
    for (let node = 1; node < this.nodes; node += 1) nodes[node] = hit[this.frame[node] - 1] | nodes[this.parent[node]];
    return nodes;
  }

  /** For each node, whether its whole stack is this one. @param {{file: string, line: number, name: string}[]} frames innermost first */
  nodesOf(frames) {
    const nodes = new Uint8Array(this.nodes);
    const wanted = frames.map((frame) => `${frame.file}:${frame.line} ${frame.name}`).join("\n");
    for (let node = 1; node < this.nodes; node += 1) {
      if (this.frameText(this.frame[node] - 1) !== wanted.split("\n", 1)[0]) continue;
      nodes[node] =
        this.framesOf(node)
          .map((frame) => this.frameText(frame))
          .join("\n") === wanted
          ? 1
          : 0;
    }
    return nodes;
  }
}

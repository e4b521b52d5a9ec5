// Stacks as a tree (children of the root are outermost frames), frames, and the lines that represent stacks in tables.

import { varints } from "./decode.js";
import { shortPath } from "./format.js";

export class Stacks {
  /** @param {{header: any, column: (name: string) => Uint8Array}} packed */
  constructor({ header, column }) {
    const { nodes, frames } = header;
    /** @param {string} name @param {number} count */
    const integers = (name, count) => varints(column(name), new Uint32Array(count));
    /** @type {string[]} */
    this.strings = JSON.parse(new TextDecoder().decode(column("strings")) || "[]");
    this.nodes = nodes;
    this.parent = integers("nparent", nodes).map((distance, node) => node - distance);
    /** Frame + 1 of each node; 0 for the root. */
    this.frame = integers("nframe", nodes);
    this.file = integers("ffile", frames);
    this.line = integers("fline", frames);
    this.name = integers("fname", frames);
    this.origin = integers("forigin", frames);
    this.frames = frames;
    /** For each node, whether a user frame is below it (nearer to the allocation). */
    this.hasUsersBelow = new Uint8Array(nodes);
    for (let node = nodes - 1; node > 0; node -= 1) {
      if (this.isUsers(this.frame[node] - 1) || this.hasUsersBelow[node]) this.hasUsersBelow[this.parent[node]] = 1;
    }
    /** For each node, whether a frame of its stack has a box in the flame graph. */
    this.hasBox = new Uint8Array(nodes);
    for (let node = 1; node < nodes; node += 1)
      this.hasBox[node] = this.hasBox[this.parent[node]] | Number(this.isBox(node));
    const lines = header.lines || 0;
    this.lines = lines;
    this.lineFrame = integers("lline", lines);
    this.lineCaller = integers("laround", lines);
    this.lineText = integers("ltext", lines);
    this.lineOfKind = integers("kline", header.kinds);
  }

  /** Whether a node has a box in the flame graph: a user's frame, or PyTorch's without a user's below it. @param {number} node */
  isBox(node) {
    const frame = this.frame[node] - 1;
    return this.isUsers(frame) || (this.isTorch(frame) && !this.hasUsersBelow[node]);
  }

  /** The frames of a stack, innermost first. @param {number} node */
  framesOf(node) {
    const frames = [];
    for (let at = node; at > 0; at = this.parent[at]) frames.push(this.frame[at] - 1);
    return frames;
  }

  /** Whether a frame is the user's or a package's, not PyTorch's. @param {number} frame */
  isUsers(frame) {
    return this.origin[frame] < 2;
  }

  /** The frames without the interpreter's and native ones, or all if there are no others. @param {number} node */
  shownFrames(node) {
    const frames = this.framesOf(node);
    const shown = frames.filter((frame) => this.origin[frame] <= 2);
    return shown.length ? shown : frames;
  }

  /** Whether a frame is PyTorch's Python code, other than the wrappers around every call. @param {number} frame */
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

  /** The frames of a stack, one a line. @param {number} node */
  stackText(node) {
    const frames = this.framesOf(node).map((frame) => this.frameText(frame));
    return frames.join("\n");
  }

  /** A line as `analyze` prints it. @param {number} line */
  lineLabel(line) {
    return this.strings[this.lineText[line]];
  }

  /** For each node, whether a frame of its stack contains the text. @param {string} text */
  nodesWith(text) {
    const wanted = text.toLowerCase();
    const hit = new Uint8Array(this.frames);
    for (let frame = 0; frame < this.frames; frame += 1)
      hit[frame] = this.frameText(frame).toLowerCase().includes(wanted) ? 1 : 0;
    const nodes = new Uint8Array(this.nodes);
    for (let node = 1; node < this.nodes; node += 1) nodes[node] = hit[this.frame[node] - 1] | nodes[this.parent[node]];
    return nodes;
  }

  /** For each node, whether its stack has exactly these frames. @param {{file: string, line: number, name: string}[]} frames innermost first */
  nodesOf(frames) {
    const nodes = new Uint8Array(this.nodes);
    const wanted = frames.map((frame) => `${frame.file}:${frame.line} ${frame.name}`).join("\n");
    for (let node = 1; node < this.nodes; node += 1) {
      const isInnermost = this.frameText(this.frame[node] - 1) === wanted.split("\n", 1)[0];
      nodes[node] = isInnermost && this.stackText(node) === wanted ? 1 : 0;
    }
    return nodes;
  }
}

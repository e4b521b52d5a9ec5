// The analyzer for browsers in node, as the page's workers have it.
import { openSync, readFileSync, readSync, statSync } from "node:fs";
import { gunzipSync } from "node:zlib";

export const compile = (packed) => WebAssembly.compile(gunzipSync(readFileSync(packed)));

/** A module that reads `path`. */
export async function open(module, path) {
  const file = openSync(path);
  let exports = null;
  const memory = (at, length) => new Uint8Array(exports.memory.buffer, at, length);
  const page = {
    show_progress: () => {},
    read_file: (offset, to, length) => readSync(file, memory(to, length), 0, length, offset),
  };
  ({ exports } = await WebAssembly.instantiate(module, { page }));
  return {
    exports,
    size: statSync(path).size,
    pass: (text) => {
      const bytes = new TextEncoder().encode(text);
      memory(exports.reserve_name(bytes.length), bytes.length).set(bytes);
    },
    result: () => memory(exports.result_pointer(), exports.result_length()).slice(),
  };
}

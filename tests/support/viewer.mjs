// Runs the analyzer for browsers in node: viewer.mjs MODULE.wasm.gz DIRECTORY FILE..
// Each file is analyzed alone, by a module of its own. DIRECTORY gets N.html, or N.txt with the reason for no page.
import { readFileSync, writeFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

const [packed, directory, ...files] = process.argv.slice(2);
const module = await WebAssembly.compile(gunzipSync(readFileSync(packed)));
const page = { show_progress: () => {} };
for (const [index, file] of files.entries()) {
  const { exports } = await WebAssembly.instantiate(module, { page });
  const pass = (reserve, bytes) => {
    const at = reserve(bytes.length);
    new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
  };
  pass(exports.reserve_name, new TextEncoder().encode(file));
  pass(exports.reserve_content, readFileSync(file));
  exports.add_file(1);
  const kind = exports.write_page() ? "html" : "txt";
  const result = new Uint8Array(exports.memory.buffer, exports.result_pointer(), exports.result_length());
  writeFileSync(`${directory}/${index}.${kind}`, result);
}

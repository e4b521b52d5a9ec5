// Runs the analyzer for browsers in node: viewer.mjs MODULE.wasm.gz DIRECTORY FILE..
// Each file is analyzed alone, by a module of its own. DIRECTORY gets N.html, or N.txt with the reason for no page, and
// N.memory, the bytes of the module's memory at the end.
import { writeFileSync } from "node:fs";
import { compile, open } from "./module.mjs";

const [packed, directory, ...files] = process.argv.slice(2);
const module = await compile(packed);
for (const [index, file] of files.entries()) {
  const { exports, pass, result, size } = await open(module, file);
  pass(file);
  if (!exports.add_file(size, 1)) throw new Error(`${file}: not enough memory`);
  writeFileSync(`${directory}/${index}.memory`, String(exports.memory.buffer.byteLength));
  const kind = exports.write_page() ? "html" : "txt";
  writeFileSync(`${directory}/${index}.${kind}`, result());
}

// Replays in node with the analyzer for browsers: replay.mjs MODULE.wasm.gz FILE DEVICE REQUEST.. prints one line for
// each request: milliseconds, a tab, the answer.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

const [packed, file, device, ...requests] = process.argv.slice(2);
const module = await WebAssembly.compile(gunzipSync(readFileSync(packed)));
const { exports } = await WebAssembly.instantiate(module, { page: { show_progress: () => {} } });
const pass = (reserve, bytes) => {
  const at = reserve(bytes.length);
  new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
};
const result = () =>
  new TextDecoder().decode(
    new Uint8Array(exports.memory.buffer, exports.result_pointer(), exports.result_length()).slice(),
  );
pass(exports.reserve_name, new TextEncoder().encode(file));
pass(exports.reserve_content, readFileSync(file));
if (!exports.open_replay(Number(device))) {
  console.log(`0\t${JSON.stringify({ error: result() })}`);
  process.exit();
}
for (const request of requests) {
  pass(exports.reserve_name, new TextEncoder().encode(request));
  const start = performance.now();
  exports.answer();
  console.log(`${(performance.now() - start).toFixed(1)}\t${result()}`);
}

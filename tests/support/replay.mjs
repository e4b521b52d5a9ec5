// Replays in node with the analyzer for browsers: replay.mjs MODULE.wasm.gz FILE DEVICE REQUEST.. prints one line for
// each request: milliseconds, a tab, the answer.
import { compile, open } from "./module.mjs";

const [packed, file, device, ...requests] = process.argv.slice(2);
const { exports, pass, result, size } = await open(await compile(packed), file);
const text = () => new TextDecoder().decode(result());
pass(file);
if (!exports.open_replay(size, Number(device))) {
  console.log(`0\t${JSON.stringify({ error: text() })}`);
  process.exit();
}
for (const request of requests) {
  pass(request);
  const start = performance.now();
  exports.answer();
  console.log(`${(performance.now() - start).toFixed(1)}\t${text()}`);
}

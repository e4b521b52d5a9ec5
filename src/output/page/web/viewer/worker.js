// Runs the analyzer: receives the module and files, answers with progress, then with the page or why there is none.

/** The number of bytes copied into the module at once. */
const CHUNK = 4 << 20;
/** The largest file that a module with 32-bit addresses can hold. */
const MAX_FILE = 2 ** 31 - 1;

/** @param {File} file @param {string} why */
function tooLarge(file, why) {
  return `${file.name}: ${why}. On a machine that has Python: pip install oomscope && oomscope report ${JSON.stringify(file.name)} -o report.html`;
}

/** @param {any} exports @param {string} name */
function passName(exports, name) {
  const bytes = new TextEncoder().encode(name);
  const at = exports.reserve_name(bytes.length);
  new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
}

/** Copies a file into the module, chunk by chunk. @param {any} exports @param {File} file @param {(read: number) => void} report */
async function passContent(exports, file, report) {
  const at = exports.reserve_content(file.size);
  if (file.size && !at) throw new Error(tooLarge(file, "needs more memory than the browser gives"));
  for (let offset = 0; offset < file.size; offset += CHUNK) {
    const chunk = new Uint8Array(await file.slice(offset, offset + CHUNK).arrayBuffer());
    new Uint8Array(exports.memory.buffer, at + offset, chunk.length).set(chunk);
    report(offset + chunk.length);
  }
}

/** @param {WebAssembly.Module} module @param {File[]} files */
async function analyze(module, files) {
  let reading = 0;
  /** @param {string} step @param {number} read @param {number} total */
  const report = (step, read, total) => postMessage({ step, file: reading, done: total ? read / total : 1 });
  const { exports } = /** @type {any} */ (
    await WebAssembly.instantiate(module, {
      page: {
        show_progress: (/** @type {number} */ read, /** @type {number} */ total) => report("analyze", read, total),
      },
    })
  );
  for (const file of files) {
    if (file.size > MAX_FILE) throw new Error(tooLarge(file, "is larger than a browser can hold"));
    passName(exports, file.name);
    await passContent(exports, file, (read) => report("read", read, file.size));
    try {
      exports.add_file(files.length);
    } catch (error) {
      // Only memory that runs out ends a file in this way.
      throw new Error(tooLarge(file, "needs more memory than the browser gives"), { cause: error });
    }
    reading += 1;
  }
  const isPage = exports.write_page() === 1;
  const bytes = new Uint8Array(exports.memory.buffer, exports.result_pointer(), exports.result_length());
  return isPage ? { page: new Blob([bytes], { type: "text/html" }) } : { message: new TextDecoder().decode(bytes) };
}

addEventListener("message", async ({ data }) => {
  try {
    postMessage(await analyze(data.module, data.files));
  } catch (error) {
    postMessage({ message: error instanceof Error ? error.message : String(error) });
  }
});

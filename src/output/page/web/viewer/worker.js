// Runs the analyzer: receives the module and files, answers with progress, then with the page or why there is none. The
// module reads files in chunks.

/** The largest file that a module with 32-bit addresses can hold. */
const MAX_FILE = 2 ** 31 - 1;

/** @param {string} name @param {string} why */
function tooLarge(name, why) {
  return `${name}: ${why}. On a machine that has Python: pip install oomscope && oomscope report ${JSON.stringify(name)} -o report.html`;
}

/** @param {any} exports @param {string} text */
function passText(exports, text) {
  const bytes = new TextEncoder().encode(text);
  const at = exports.reserve_name(bytes.length);
  new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
}

/** The file that the module reads. @type {Blob} */
let openFile = new Blob();

/** Has `call` read a file. @template T @param {string} name @param {Blob} file @param {() => T} call @returns {T} */
function readBy(name, file, call) {
  if (file.size > MAX_FILE) throw new Error(tooLarge(name, "is larger than a browser can hold"));
  openFile = file;
  try {
    return call();
  } catch (error) {
    // A module ends in this way only if memory runs out.
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    throw new Error(tooLarge(name, "needs more memory than the browser gives"), { cause: error });
  }
}

/** @param {BufferSource | WebAssembly.Module} module @param {(read: number, total: number) => void} showProgress of the analysis @param {(read: number) => void} showRead the bytes of the file that are read @returns {Promise<any>} */
async function instantiate(module, showProgress, showRead) {
  const reader = new /** @type {any} */ (self).FileReaderSync();
  /** @type {any} */
  let exports = null;
  /** @param {number} offset @param {number} to @param {number} length */
  const readFile = (offset, to, length) => {
    const bytes = new Uint8Array(reader.readAsArrayBuffer(openFile.slice(offset, offset + length)));
    new Uint8Array(exports.memory.buffer, to, bytes.length).set(bytes);
    showRead(offset + bytes.length);
    return bytes.length;
  };
  const imports = { page: { show_progress: showProgress, read_file: readFile } };
  const made = /** @type {any} */ (await WebAssembly.instantiate(/** @type {any} */ (module), imports));
  exports = (made.instance ?? made).exports;
  return exports;
}

/** The result of the module's last call. @param {any} exports */
function resultOf(exports) {
  return new Uint8Array(exports.memory.buffer, exports.result_pointer(), exports.result_length());
}

/** @param {WebAssembly.Module} module @param {File[]} files */
async function analyze(module, files) {
  let reading = 0;
  /** @param {string} step @param {number} read @param {number} total */
  const report = (step, read, total) => postMessage({ step, file: reading, done: total ? read / total : 1 });
  const exports = await instantiate(
    module,
    (read, total) => report("analyze", read, total),
    (read) => report("read", read, files[reading].size),
  );
  for (const file of files) {
    passText(exports, file.name);
    if (!readBy(file.name, file, () => exports.add_file(file.size, files.length)))
      throw new Error(tooLarge(file.name, "needs more memory than the browser gives"));
    reading += 1;
  }
  const isPage = exports.write_page() === 1;
  const bytes = resultOf(exports);
  return isPage ? { page: new Blob([bytes], { type: "text/html" }) } : { message: new TextDecoder().decode(bytes) };
}

addEventListener("message", async ({ data }) => {
  try {
    postMessage(await analyze(data.module, data.files));
  } catch (error) {
    postMessage({ message: error instanceof Error ? error.message : String(error) });
  }
});

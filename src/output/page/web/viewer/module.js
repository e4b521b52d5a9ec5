// What the workers share: passing a file to the analyzer's module.

/** The number of bytes copied into the module at once. */
const CHUNK = 4 << 20;
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

/** Copies a file into the module, chunk by chunk. @param {any} exports @param {string} name @param {Blob} file @param {(read: number) => void} report */
async function passContent(exports, name, file, report) {
  if (file.size > MAX_FILE) throw new Error(tooLarge(name, "is larger than a browser can hold"));
  const at = exports.reserve_content(file.size);
  if (file.size && !at) throw new Error(tooLarge(name, "needs more memory than the browser gives"));
  for (let offset = 0; offset < file.size; offset += CHUNK) {
    const chunk = new Uint8Array(await file.slice(offset, offset + CHUNK).arrayBuffer());
    new Uint8Array(exports.memory.buffer, at + offset, chunk.length).set(chunk);
    report(offset + chunk.length);
  }
}

/** @param {BufferSource | WebAssembly.Module} module @param {(read: number, total: number) => void} report @returns {Promise<any>} */
async function instantiate(module, report) {
  const imports = { page: { show_progress: report } };
  const made = /** @type {any} */ (await WebAssembly.instantiate(/** @type {any} */ (module), imports));
  return (made.instance ?? made).exports;
}

/** The result of the module's last call. @param {any} exports */
function resultOf(exports) {
  return new Uint8Array(exports.memory.buffer, exports.result_pointer(), exports.result_length());
}

// Runs the analyzer: receives the module and files, answers with progress, then with the page or why there is none.

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

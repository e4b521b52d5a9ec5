// Replays one device of a snapshot: receives the module, the file and a port, then answers the requests on the port.

/** @param {any} data @param {(part: number) => void} report @returns {Promise<(request: string) => string>} */
async function openDevice({ module, file, name, device }, report) {
  const exports = await instantiate(
    module,
    (read, total) => report(total ? read / total : 1),
    () => {},
  );
  passText(exports, name);
  const open = readBy(name, file, () => exports.open_replay(file.size, device));
  const decoder = new TextDecoder();
  if (!open) throw new Error(decoder.decode(resultOf(exports)));
  return (request) => {
    passText(exports, request);
    exports.answer();
    return decoder.decode(resultOf(exports));
  };
}

addEventListener("message", ({ data }) => {
  /** @type {MessagePort} */
  const port = data.port;
  const answerer = openDevice(data, (progress) => port.postMessage({ progress }));
  // The answers say why it failed.
  answerer.catch(() => {});
  port.onmessage = async ({ data: request }) => {
    if (request === "close") return close();
    let answer;
    try {
      answer = (await answerer)(request);
    } catch (error) {
      const isTrap = error instanceof WebAssembly.RuntimeError;
      const message = isTrap ? "needs more memory than the browser gives" : /** @type {any} */ (error).message;
      answer = JSON.stringify({ error: message });
    }
    port.postMessage({ answer });
  };
});

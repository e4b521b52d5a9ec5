import { fromBase64 } from "../base64.js";

(() => {
  "use strict";
  // Takes files from a drop, the dialog or the address, has a worker analyze them, and shows the page it makes.

  /** @param {string} id @returns {any} */
  const byId = (id) => document.getElementById(id);
  const parameters = new URLSearchParams(location.hash.slice(1));

  // Nothing is fetched but the file that the address names; without one, nothing at all.
  if (!parameters.has("url")) {
    const policy = document.createElement("meta");
    policy.httpEquiv = "Content-Security-Policy";
    policy.content = "connect-src 'none'";
    document.head.append(policy);
  }

  /** The analyzer, compiled once. @type {Promise<WebAssembly.Module> | undefined} */
  let module;
  /** @type {Worker | undefined} */
  let worker;
  let pageUrl = "";
  /** The page that is shown, and its view as a text of the address. @type {Blob} */
  let shownPage = new Blob();
  let shownView = "";

  function compile() {
    const packed = fromBase64(byId("module").textContent);
    const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(plain).arrayBuffer().then((bytes) => WebAssembly.compile(bytes));
  }

  /** @param {string} text */
  function showMessage(text) {
    byId("message").textContent = text;
    byId("message").hidden = !text;
  }

  function stop() {
    worker?.terminate();
    worker = undefined;
    byId("reading").hidden = true;
  }

  /** @param {File[]} files @param {Blob} page */
  function showPage(files, page) {
    URL.revokeObjectURL(pageUrl);
    pageUrl = URL.createObjectURL(page);
    const first = files[0].name;
    [shownPage, shownView] = [page, ""];
    byId("shown").textContent = files.length > 1 ? `${first} and ${files.length - 1} more` : first;
    document.title = `${first} - oomscope`;
    byId("save").download = `${first.replace(/\.(pickle|pkl|json)?(\.gz|\.zst)?$/, "")}.html`;
    byId("frame").src = pageUrl;
    byId("viewer").hidden = true;
    byId("result").hidden = false;
    byId("frame").focus();
  }

  /** Saves the page with its view, which no address has. */
  function savePage() {
    const view = `<script type="application/json" id="shown-view">${JSON.stringify(shownView).replace(/</g, "\\u003c")}<\/script>`;
    const url = URL.createObjectURL(new Blob([shownPage, view], { type: "text/html" }));
    byId("save").href = url;
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  }

  function closePage() {
    byId("files").value = "";
    byId("frame").src = "about:blank";
    byId("result").hidden = true;
    byId("viewer").hidden = false;
    document.title = "oomscope viewer";
  }

  function startWorker() {
    const url = URL.createObjectURL(new Blob([byId("worker-text").textContent], { type: "text/javascript" }));
    const started = new Worker(url);
    URL.revokeObjectURL(url);
    return started;
  }

  /** @param {Iterable<File>} chosen */
  async function open(chosen) {
    const files = [...chosen].sort((one, other) => (one.name < other.name ? -1 : 1));
    if (!files.length) return;
    stop();
    closePage();
    showMessage("");
    byId("progress").removeAttribute("value");
    byId("status").textContent = "Starting the analyzer";
    byId("reading").hidden = false;
    const current = startWorker();
    worker = current;
    current.addEventListener("message", ({ data }) => {
      if (worker !== current) return;
      if (data.step) {
        const verb = data.step === "read" ? "Reading" : "Analyzing";
        const place = files.length > 1 ? ` (${data.file + 1} of ${files.length})` : "";
        byId("status").textContent = `${verb} ${files[data.file].name}${place}`;
        byId("progress").value = data.done;
        return;
      }
      stop();
      if (data.page) showPage(files, data.page);
      else showMessage(data.message);
    });
    try {
      module ??= compile();
      current.postMessage({ module: await module, files });
    } catch (error) {
      stop();
      showMessage(`The analyzer does not start in this browser: ${error instanceof Error ? error.message : error}`);
    }
  }

  /** Reads the file that the address names, from the same site. @param {string} address */
  async function openAddress(address) {
    const url = new URL(address, location.href);
    if (url.origin !== location.origin || location.origin === "null") {
      showMessage(`${address}: is not of this site. Download the file and drop it here.`);
      return;
    }
    try {
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      await open([new File([await answer.blob()], url.pathname.split("/").pop() || "snapshot")]);
    } catch (error) {
      showMessage(`${address}: cannot be read: ${error instanceof Error ? error.message : error}`);
    }
  }

  byId("files").addEventListener("change", () => open(byId("files").files));
  byId("cancel").addEventListener("click", stop);
  byId("again").addEventListener("click", closePage);
  byId("save").addEventListener("click", savePage);
  addEventListener("dragover", (event) => {
    event.preventDefault();
    byId("drop").classList.add("over");
  });
  addEventListener("dragleave", () => byId("drop").classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
    open(event.dataTransfer?.files ?? []);
  });
  // The page in the frame passes its view, and the files that are dropped on it.
  addEventListener("message", ({ data, source }) => {
    if (source !== byId("frame").contentWindow) return;
    if (data === "oomscope page") byId("frame").contentWindow.postMessage("oomscope viewer", "*");
    else if (typeof data.view === "string") shownView = data.view;
    else if (data.files) open(data.files);
  });
  const address = parameters.get("url");
  if (address) openAddress(address);
})();

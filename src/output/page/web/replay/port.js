// The connection to the analyzer that replays a device: a worker of this page, which then carries the analyzer and the
// snapshots (`report --replay`), or one of the viewer that shows this page in a frame.

import { byId } from "../dom.js";
import { analysis } from "../main.js";
import { fromBase85 } from "./base85.js";

/**
 * @typedef {object} ReplayPort
 * @property {(request: any) => Promise<any>} ask
 * @property {() => void} close
 */

/** Whether the frame around this page is a viewer that replays. */
export let isViewerAround = false;

/** Whether this page can replay, by itself or with the viewer around it. */
export function canReplay() {
  return isViewerAround || !!byId("replay-module");
}

/** Calls `then` once the viewer around this page says that it replays. @param {() => void} then */
export function awaitViewer(then) {
  if (window.parent === window) return;
  // Opened as a file, the viewer and this page have origins without a name: only the source tells.
  addEventListener("message", ({ data, source }) => {
    if (source !== window.parent || data !== "oomscope replays" || isViewerAround) return;
    isViewerAround = true;
    passDrops();
    then();
  });
  // It may have said so before this script ran.
  window.parent.postMessage("oomscope is ready", "*");
}

/** Files that are dropped on this page are for the viewer around it. */
function passDrops() {
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length) window.parent.postMessage({ files }, "*");
  });
}

/** Wraps a port: answers come in the order of the requests. @param {MessagePort} port @param {() => void} close */
function wrapPort(port, close) {
  /** @type {((answer: any) => void)[]} */
  const waiting = [];
  /** @type {ReplayPort & { onprogress: (part: number) => void }} */
  const wrapped = {
    onprogress: () => {},
    ask: (request) =>
      new Promise((done) => {
        waiting.push(done);
        port.postMessage(JSON.stringify(request));
      }),
    close,
  };
  port.onmessage = ({ data }) => {
    if (data.progress !== undefined) wrapped.onprogress(data.progress);
    else waiting.shift()?.(JSON.parse(data.answer));
  };
  return wrapped;
}

/** The content of an element with base85. @param {Element | null} element */
function bytesOf(element) {
  return fromBase85(element?.textContent ?? "");
}

/** @type {Promise<ArrayBuffer> | null} */
let unpackedModule = null;

function unpackModule() {
  unpackedModule ??= new Response(
    new Blob([bytesOf(byId("replay-module"))]).stream().pipeThrough(new DecompressionStream("gzip")),
  ).arrayBuffer();
  return unpackedModule;
}

/** Opens a device of a snapshot for replays. @param {any} page its row in the list of pages */
export async function openReplay(page) {
  const { path } = analysis.snapshots[page.snapshot];
  const channel = new MessageChannel();
  if (isViewerAround) {
    // Files of different directories may have the same name.
    const earlier = analysis.snapshots.slice(0, page.snapshot).filter((/** @type {any} */ one) => one.path === path);
    const message = { name: path, nth: earlier.length, device: page.device };
    window.parent.postMessage(message, "*", [channel.port2]);
    return wrapPort(channel.port1, () => channel.port1.postMessage("close"));
  }
  const text = new Blob([byId("replay-worker").textContent], { type: "text/javascript" });
  const url = URL.createObjectURL(text);
  const worker = new Worker(url);
  URL.revokeObjectURL(url);
  const file = new Blob([bytesOf(document.querySelector(`script.snapshot[data-snapshot="${page.snapshot}"]`))]);
  const message = { module: await unpackModule(), file, name: path, device: page.device, port: channel.port2 };
  worker.postMessage(message, [channel.port2]);
  return wrapPort(channel.port1, () => worker.terminate());
}

// The frame around this page, which may be that of a viewer.

/** Whether it is. */
export let isViewerAround = false;

/** Hears from the viewer around this page, which takes its drops and its view. */
export function wireFrame() {
  if (window.parent === window) return;
  // Opened as a file, the viewer and this page have origins without a name: only the source tells.
  addEventListener("message", ({ data, source }) => {
    if (source !== window.parent || data !== "oomscope viewer" || isViewerAround) return;
    isViewerAround = true;
    passDrops();
  });
  // It may have said so before this script ran.
  window.parent.postMessage("oomscope page", "*");
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

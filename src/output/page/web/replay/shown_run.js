// A replayed run as one more device of the page: its map, timeline and stacks at every moment.

/** Index of the page's device with the replayed run, or -1. */
let replayedPage = -1;

/**
 * Adds the run to the page, in place of an earlier one, and shows it.
 * @param {any} run `page`, `analysis` and `data`
 * @param {any} base the row of the recorded device
 * @param {string} conditions in words
 */
async function showRun(run, base, conditions) {
  if (replayedPage < 0) replayedPage = pages.length;
  const snapshot = analysis.snapshots.length;
  analysis.snapshots.push({ path: base.title, devices: [run.analysis] });
  pages[replayedPage] = { ...run.page, snapshot, title: `${base.title}, replayed: ${conditions}` };
  openDevices.delete(replayedPage);
  document.querySelector(`script.data[data-page="${replayedPage}"]`)?.remove();
  document.body.append(
    make("script", { type: "text/plain", class: "data", "data-page": String(replayedPage) }, run.data),
  );
  await showPage(replayedPage, { pane: "replay" });
}

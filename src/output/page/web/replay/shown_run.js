// A replayed run as one more device of the page: its map, timeline and stacks at every moment.

import { make } from "../dom.js";
import { analysis, openDevices, showPage } from "../main.js";
import { pages } from "../pages.js";

/** Index of the page's device with the replayed run, or -1. */
export let replayedPage = -1;

/** Adds the run to the page, in place of an earlier one, and shows it. @param {any} run `page`, `analysis` and `data` @param {any} base the row of the recorded device @param {string} conditions in words */
export async function showRun(run, base, conditions) {
  if (replayedPage < 0) replayedPage = pages.length;
  const snapshot = analysis.snapshots.length;
  analysis.snapshots.push({ path: base.title, devices: [run.analysis] });
  pages[replayedPage] = { ...run.page, snapshot, title: `${base.title}, replayed: ${conditions}` };
  openDevices.delete(replayedPage);
  for (const old of document.querySelectorAll(`:is(.data, .result)[data-page="${replayedPage}"]`)) old.remove();
  document.body.append(
    make("script", { type: "text/plain", class: "data", "data-page": String(replayedPage) }, run.data),
    ...run.results.map((/** @type {[number | null, string]} */ [failure, html]) => {
      const key = { class: "result", "data-page": String(replayedPage), "data-failure": String(failure ?? "") };
      const template = make("template", key);
      template.innerHTML = html;
      return template;
    }),
  );
  await showPage(replayedPage, { pane: "replay" });
}

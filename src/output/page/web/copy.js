// Copies text, and saves files: stacks, tables as CSV, pictures.

import { byId, make } from "./dom.js";

/** @param {string} text */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A frame or an old browser: copy what is selected in a field.
    const field = make("textarea", { class: "offstage", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

/** A button that copies, and says so. @param {string} label @param {() => string} text */
export function copyButton(label, text) {
  const button = make("button", {}, label);
  button.addEventListener("click", async () => {
    await copyText(text());
    announce(`${label}: done`);
    button.textContent = "copied";
    setTimeout(() => (button.textContent = label), 1200);
  });
  return button;
}

/** Tells a screen reader. @param {string} text */
export function announce(text) {
  byId("announcer").textContent = text;
}

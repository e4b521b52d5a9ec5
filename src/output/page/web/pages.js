// The list of pages: one row for each device of each snapshot, the worst first, with a sparkline.

/** @type {any[]} */
let pages = [];

/** Devices from which on the list has a field that narrows it. */
const MANY_PAGES = 9;

function pagesTitle() {
  const order = parseJsonElement("compared") ? "in the order given" : "the worst first";
  return `${countText(pages.length)} devices, ${order}`;
}

/** A field that keeps the devices with a text in their title. @param {Element} list */
function pagesFilter(list) {
  const label = "devices whose name contains";
  const field = make("input", { type: "search", id: "pages-filter", placeholder: label, "aria-label": label });
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const button of list.children)
      button.toggleAttribute(
        "hidden",
        !pages[Number(button.getAttribute("data-page"))].title.toLowerCase().includes(wanted),
      );
  });
  return field;
}

/** The list, below a field if it is long. @returns {Element[]} */
function pagesList() {
  const list = make("div", { class: "pages", role: "listbox", "aria-label": "devices" });
  const maxBytes = pages.reduce(
    (top, page) => Math.max(top, page.course?.scale_bytes || page.peak_reserved_bytes || 0),
    1,
  );
  const isOneDevice = pages.every((page) => page.device === pages[0].device);
  pages.forEach((page, index) => {
    const canvas = make("canvas", { width: 112, height: 24, "aria-hidden": "true" });
    drawSparkline(canvas, page, maxBytes);
    const failures = page.failures
      ? make("b", { class: "bad" }, countOf(page.failures, "failure"))
      : make("span", { class: "muted" }, "no failure");
    list.append(
      make(
        "button",
        { class: "page", role: "option", "data-page": index, onclick: () => showPage(index, { axis: view.axis }) },
        make(
          "span",
          { class: "page-name", title: page.title },
          make("span", {}, page.title.replace(/, device \d+$/, "")),
          ...(isOneDevice ? [] : [make("b", {}, `device ${page.device}`)]),
        ),
        canvas,
        make("span", {}, `peak ${bytesText(page.peak_allocated_bytes)}`),
        failures,
      ),
    );
  });
  return pages.length < MANY_PAGES ? [list] : [pagesFilter(list), list];
}

/**
 * Draws a page's reserved and allocated memory.
 * @param {any} canvas
 * @param {any} page
 * @param {number} maxBytes at the top
 */
function drawSparkline(canvas, page, maxBytes) {
  if (!page.course) return;
  const context = canvas.getContext("2d");
  const { scale_bytes: scale, reserved, allocated } = page.course;
  const wide = canvas.width / (reserved.length || 1);
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (const [values, colour] of /** @type {[number[], string][]} */ ([
    [reserved, theme.muted],
    [allocated, theme.accent],
  ])) {
    context.globalAlpha = colour === theme.muted ? 0.4 : 1;
    context.fillStyle = colour;
    values.forEach((value, at) => {
      const high = (((value / 1000) * scale) / maxBytes) * canvas.height;
      context.fillRect(at * wide, canvas.height - high, wide, high);
    });
  }
}

function drawPages() {
  const maxBytes = pages.reduce((top, page) => Math.max(top, page.course?.scale_bytes || 0), 1);
  for (const button of document.querySelectorAll(".page")) {
    const index = Number(button.getAttribute("data-page"));
    button.setAttribute("aria-selected", String(index === view.page));
    drawSparkline(button.querySelector("canvas"), pages[index], maxBytes);
  }
}

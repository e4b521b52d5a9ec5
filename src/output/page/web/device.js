// One page: the trace of one device, decoded.

class Device {
  /**
   * @param {{header: any, column: (name: string) => Uint8Array}} packed
   * @param {any} page its row of the list of pages
   * @param {any} analysis what `analyze` says of it
   */
  constructor(packed, page, analysis) {
    this.page = page;
    this.analysis = analysis;
    this.data = new Columns(packed);
    this.stacks = new Stacks(packed);
    this.totals = new Totals(this.data);
    this.sweep = new Sweep(this.data);
    this.groups = { category: groupsByCategory(this), line: groupsByLine(this) };
  }

  /** The entry that led to moment m, as the command line counts, or null for the start. @param {number} m */
  entryOf(m) {
    return m > 0 ? m - 1 + (this.data.header.first_event || 0) : null;
  }

  /** In words. @param {number} m */
  momentText(m) {
    const entry = this.entryOf(m);
    if (!this.data.entries) return "at the snapshot";
    return entry === null ? "before the first entry" : `after entry ${countText(entry)}`;
  }

  /** The last failed request, or null. @returns {any} */
  lastFailure() {
    return this.data.header.failures.at(-1) ?? null;
  }

  /** What is stacked at first: categories, unless there is nearly nothing to tell by them. @returns {View["mode"]} */
  firstMode() {
    const { names, of } = this.groups.category;
    const m = this.firstMoment();
    const sums = sumsBy(this, { m, rows: this.sweep.live(m), segments: [] }, of);
    const other = sums.find(({ key }) => names[key] === "other")?.bytes ?? 0;
    return other > 0.9 * this.totals.allocated[m] ? "line" : "category";
  }

  /** The moment that is looked at first: the one asked for with `--at`, the last failure, or the peak. */
  firstMoment() {
    const asked = this.analysis?.moment;
    if (asked) {
      const m = asked.at === "entry" ? asked.event + 1 - this.data.header.first_event : 0;
      if (m >= 0 && m <= this.data.entries) return m;
    }
    return this.lastFailure()?.moment ?? this.totals.peak;
  }
}

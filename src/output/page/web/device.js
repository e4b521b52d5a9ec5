// One page: the trace of one device, decoded.

import { Columns } from "./columns.js";
import { countText } from "./format.js";
import { groupsByCategory, groupsByLine, groupsByVariable } from "./groups.js";
import { sumsBy } from "./moment.js";
import { SegmentRows, segmentChangesOf } from "./segments.js";
import { Stacks } from "./stacks.js";
import { Sweep } from "./sweep.js";
import { Totals } from "./totals.js";
/** @import { View } from "./view.js" */

/** A part of the JSON with its `details` beside the keys that are promised. @param {any} part @returns {any} */
function withDetails(part) {
  if (Array.isArray(part)) return part.map(withDetails);
  if (!part || typeof part !== "object") return part;
  const { details, ...promised } = part;
  const members = Object.entries({ ...promised, ...details });
  return Object.fromEntries(members.map(([key, value]) => [key, withDetails(value)]));
}

export class Device {
  /** @type {Map<number, any> | undefined} */
  #failures;
  /** @type {ReturnType<typeof segmentChangesOf> | undefined} */
  #segmentChanges;
  /** @type {SegmentRows | undefined} */
  #segmentRows;
  /** @type {Sweep | undefined} */
  #segmentSweep;

  /** @param {{header: any, column: (name: string) => Uint8Array}} packed @param {any} page its row in the list of pages @param {any} analysis its part of the JSON of `analyze` */
  constructor(packed, page, analysis) {
    this.page = page;
    this.analysis = withDetails(analysis);
    this.data = new Columns(packed);
    this.stacks = new Stacks(packed);
    this.totals = new Totals(this.data);
    this.sweep = new Sweep(this.data);
    const line = groupsByLine(this);
    /** By mode. */
    const category = groupsByCategory(this);
    this.groups = { category, line, variable: groupsByVariable(this), each: line, segment: category };
  }

  /** The category of a kind of allocation, as its group is called: with "(a guess)" if it is one. @param {number} kind */
  categoryText(kind) {
    const { names, groupOfKind } = this.groups.category;
    return names[groupOfKind[kind]];
  }

  /** Index of the entry before moment m, as in the JSON, or null for the start. @param {number} m */
  entryOf(m) {
    return m > 0 ? m - 1 + (this.data.header.first_event || 0) : null;
  }

  /** The same as text. @param {number} m */
  entryText(m) {
    return countText(this.entryOf(m) ?? 0);
  }

  /** The failed request that moment m follows, or null. @param {number} m @returns {any} */
  failureAt(m) {
    this.#failures ??= new Map(this.data.header.failures.map((/** @type {any} */ one) => [one.moment, one]));
    return this.#failures.get(m) ?? null;
  }

  /** The changes of device memory, by moment. */
  get segmentChanges() {
    return (this.#segmentChanges ??= segmentChangesOf(this.data));
  }

  /** Ranges of device memory as rows. */
  segmentRows() {
    return (this.#segmentRows ??= new SegmentRows(this.data));
  }

  segmentSweep() {
    return (this.#segmentSweep ??= new Sweep(/** @type {any} */ (this.segmentRows())));
  }

  /** @param {number} m */
  momentText(m) {
    const entry = this.entryOf(m);
    if (!this.data.entries) return "at the snapshot";
    return entry === null ? "before the first entry" : `after entry ${countText(entry)}`;
  }

  /** The last failed request, or null. @returns {any} */
  lastFailure() {
    return this.data.header.failures.at(-1) ?? null;
  }

  /** The size of the device, or what was within reach at the last failure; 0 if neither is known. */
  get capacity() {
    const failed = this.analysis?.ooms?.at(-1);
    return this.analysis?.capacity_bytes ?? (failed ? failed.reserved_bytes + failed.device_free_bytes : 0);
  }

  /** The initial mode: categories, unless nearly all memory is in category "other". @returns {View["mode"]} */
  firstMode() {
    const { names, groupOfKind } = this.groups.category;
    const m = this.firstMoment();
    const sums = sumsBy(this, { m, rows: this.sweep.live(m), segments: [] }, groupOfKind);
    const other = sums.find(({ key }) => names[key] === "other")?.bytes ?? 0;
    return other > 0.9 * this.totals.allocated[m] ? "line" : "category";
  }

  /** The position of `--at`, if there is one. */
  requestedMoment() {
    const moment = this.analysis?.moment;
    return moment?.at === "snapshot" ? undefined : moment;
  }

  /** The initial moment: the one of `--at`, else the last failure, else the peak. */
  firstMoment() {
    const requested = this.requestedMoment();
    if (requested) {
      const m = requested.at === "entry" ? requested.event + 1 - this.data.header.first_event : 0;
      if (m >= 0 && m <= this.data.entries) return m;
    }
    return this.lastFailure()?.moment ?? this.totals.peak;
  }
}

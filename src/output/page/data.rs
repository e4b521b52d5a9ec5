//! The data of one device: header and columns, deflated.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde_json::{Value, json};

use super::budget::{Budgeted, MAX_FRAMES};
use super::columns::{Column, NameTable};
use super::events::{self, ShownEntries, retain_shown};
use super::stacks::StackTable;
use crate::allocator::granule_size;
use crate::allocator::verdict::Verdict;
use crate::analysis::DeviceReport;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::Distinct;
use crate::base::threads;
use crate::output::wording::{keeper_details, keeper_name};
use crate::snapshot::Stacks;
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::attribution::{Category, Confidence};
use crate::study::iterations::GrowthKind;
use crate::study::lifetimes::{AllocationKind, EntryCount, MemoryLifetimes, joined_ranges};
use crate::study::memory::Holder;

/// Properties that allocations share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    requested_bytes: u64,
    node: u32,
    line: u32,
    place: u32,
    category: Category,
    confidence: Confidence,
    /// `None` if older than the recording.
    phase: Option<Phase>,
    /// Row of the header's variables.
    variable: usize,
}

/// Packs `device`, whose analysis is `report`, into about `budget` bytes at most.
pub(super) fn pack(device: DeviceStudy<'_, '_>, report: &mut DeviceReport, budget: usize) -> io::Result<Vec<u8>> {
    let mut lives = report.lives.take().unwrap_or_else(|| MemoryLifetimes::from_device(device));
    let window = device.window();
    let shown = ShownEntries { first: to_u32(window.start), entries: to_u32(window.len()) };
    let (space, (times, marks, ranges)) = threads::join(
        || {
            retain_shown(&mut lives, shown);
            AddressMap::new(&lives)
        },
        || (times(device), events::marks(device, shown), events::ranges(device, shown)),
    );
    let packing = Packing { device, report, shown, space, times, marks, ranges };
    let stacks = &device.snapshot().stacks;
    let mut budgeted = Budgeted::new(&lives, shown.entries);
    let within = budgeted.count_within_frames(MAX_FRAMES, |stack| stacks.frames(stack).len());
    let mut keep = within.min(FIRST_TRIED);
    let mut is_too_large = false;
    loop {
        budgeted.keep(keep);
        let (blob, scaling) = packing.pack(&lives, &budgeted)?;
        let kept = budgeted.kept().count();
        let room = budget.saturating_sub(blob.len().saturating_sub(scaling));
        is_too_large |= blob.len() > budget;
        // The allocations kept live longer and compress worse: leave a margin.
        let fifths = if is_too_large { 4 } else { 5 };
        let wanted = kept as u128 * room as u128 * fifths / 5 / (scaling as u128).max(1);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).min(within);
        // Only allocations are omitted, and the stacks that only these have. Stacks that others share stay, so that
        // once may not be enough. A few more allocations are not worth another try.
        let is_done = if blob.len() > budget { kept == 0 } else { is_too_large || wanted <= kept + kept / 4 };
        if is_done {
            return Ok(blob);
        }
        keep = wanted;
    }
}

/// Allocations that are tried first: more hardly ever fit, and to deflate all of a long recording takes most of the time.
const FIRST_TRIED: usize = 1 << 20;

/// The rows of the holders in the result of the device.
fn holders(report: &DeviceReport) -> &[Holder] {
    let failed = report.ooms.last().and_then(|oom| oom.held.as_ref());
    let held = report.at_moment.as_ref().or(failed).or(report.at_peak.as_ref());
    held.map_or(&report.top_lines, |held| &held.by_line.rows)
}

/// The input of packing, which may run twice.
struct Packing<'p, 's, 'a> {
    device: DeviceStudy<'s, 'a>,
    report: &'p DeviceReport,
    shown: ShownEntries,
    space: AddressMap,
    times: Option<Column>,
    marks: Vec<Value>,
    ranges: Vec<Value>,
}

/// The header, its keys in alphabetical order. The runs, a million in a long trace, would take 170 MB as JSON values.
#[derive(Serialize)]
struct Header {
    #[serde(flatten)]
    before: Value,
    phase_runs: Vec<(EntryCount, usize)>,
    #[serde(flatten)]
    after: Value,
}

impl Packing<'_, '_, '_> {
    /// The data, and the bytes of it that belong to allocations and their stacks.
    fn pack(&self, lives: &MemoryLifetimes, budgeted: &Budgeted<'_>) -> io::Result<(Vec<u8>, usize)> {
        let Self { device, report, shown, ref space, .. } = *self;
        let mut stacks = StackTable::new(device.stacks());
        let mut names = NameTable::default();
        let pools = &device.snapshot().pools;
        let places = lives.places.all.iter();
        let places: Vec<(u32, u32)> =
            places.map(|place| (names.streams.add(place.stream), names.pools.add(pools.get(place.pool)))).collect();
        let ((undrawn, series), (mut scaling, kinds)) =
            threads::join(|| budgeted.summarize_omitted().unzip(), || self.allocations(budgeted, &mut stacks, &places));
        let segments = self.segments(lives, &mut stacks, &places);
        let failures = self.failures(&mut stacks, &mut names);
        scaling.extend(stacks.columns());
        let fixed: Vec<&Column> = segments.iter().chain(&self.times).chain(&series).collect();
        let phases = device.phases();
        let (first_step, steps) = events::steps(phases, shown);
        let granules = [true, false].map(|is_small| granule_size(is_small, device.settings()));
        // docs/report-data.md documents these keys.
        let before = json!({
            "device": device.id(),
            "entries": shown.entries,
            "first_event": u64::from(shown.first),
            "allocations": budgeted.kept().count(),
            "pending_at_start": budgeted.kept().filter(|one| one.freed_at() == Some(0)).count(),
            "kinds": kinds,
            "nodes": stacks.nodes.all.len(),
            "frames": stacks.frames.all.len(),
            "lines": stacks.lines.all.len(),
            "granules": granules,
            "columns": fixed.iter().copied().chain(&scaling).map(|column| (column.name, column.bytes.len())).collect::<Vec<_>>(),
            "categories": Category::ALL,
            "held_lines": holders(report).iter().map(|row| stacks.lines_at(&row.location)).collect::<Vec<_>>(),
            "failure_count": report.oom_count,
            "failures": failures,
            "marks": self.marks,
            "first_step": first_step,
        });
        let after = json!({
            "version": 2,
            "segments": lives.segments.len(),
            "unit": space.unit,
            "regions": space.regions(),
            "streams": names.streams.all.iter().map(u64::to_string).collect::<Vec<_>>(),
            "pools": names.pools.all.iter().map(|[first, second]| format!("{first}:{second}")).collect::<Vec<_>>(),
            "variables": variable_rows(device),
            "phases": Phase::ALL,
            "proof": find_proof(report),
            "ranges": self.ranges,
            "steps": steps,
            "start_us": device.device().time_us(shown.first as usize),
            "undrawn": undrawn,
        });
        let header = serde_json::to_vec(&Header { before, phase_runs: events::phase_runs(phases, shown), after })?;
        deflate(&header, &fixed, &scaling)
    }

    /// The stack of the last entry before a position on the page.
    fn stack_at(&self, at: EntryCount) -> StackId {
        let entry = (self.shown.first as usize + at as usize).checked_sub(1);
        entry.map_or(Stacks::EMPTY, |entry| self.device.device().entry(entry).extended_stack)
    }

    fn failures(&self, stacks: &mut StackTable, names: &mut NameTable) -> Vec<Value> {
        let listed = self.report.ooms.iter().enumerate().filter_map(|(index, oom)| {
            let entry = usize::try_from(oom.event).ok()?;
            Some(json!({
                "moment": events::after(self.shown, oom.event)?,
                "requested_bytes": oom.requested_bytes,
                "segment_bytes": oom.segment_bytes,
                "stream": names.streams.add(oom.stream),
                "pool": oom.pool_id.map(|id| names.pools.add(id)),
                "node": stacks.intern(self.device.device().entry(entry).extended_stack, false).0,
                "index": index, // into the failures of the analysis
            }))
        });
        listed.collect()
    }

    /// The columns of allocations, and the number of their kinds.
    fn allocations(&self, budgeted: &Budgeted, stacks: &mut StackTable, places: &[(u32, u32)]) -> (Vec<Column>, usize) {
        let mut kinds: Distinct<Kind> = Distinct::default();
        let [mut start, mut req, mut done, mut addr, mut of_kind, mut slack, mut freed_by] =
            ["start", "req", "done", "addr", "kind", "slack", "fnode"].map(Column::new);
        for one in budgeted.kept() {
            let freed = one.freed_at().unwrap_or(one.start);
            start.push_more(u64::from(one.start));
            req.push(u64::from(freed - one.start));
            done.push(one.reusable_at().map_or(0, |done| u64::from(done - freed) + 1));
            addr.push_change(self.space.offset_of(one.address));
            let AllocationKind { bytes, requested_bytes, place } = *budgeted.lives.kind_of(one);
            let rounded = requested_bytes.div_ceil(self.space.unit);
            slack.push((bytes / self.space.unit).saturating_sub(rounded));
            let (node, line) = stacks.intern(one.made_by, one.is_before_recording(self.device));
            let freed_by_node = one.freed_at().map_or(0, |at| stacks.intern_node(self.stack_at(at)));
            // Without stacks of frees PyTorch records that of the allocation again.
            freed_by.push(if freed_by_node == node { 0 } else { u64::from(freed_by_node) });
            let kind = Kind {
                requested_bytes,
                node,
                line,
                place,
                category: one.category,
                confidence: one.confidence,
                phase: one.phase,
                variable: row_of(one.variable(self.device)),
            };
            of_kind.push(kinds.add(kind).into());
        }
        let mut columns = vec![start, req, done, addr, of_kind, slack, freed_by];
        let all = &*kinds.all;
        columns.extend([
            Column::from_rows("krequested", all, |kind| kind.requested_bytes),
            Column::from_rows("knode", all, |kind| kind.node.into()),
            Column::from_rows("kline", all, |kind| kind.line.into()),
            Column::from_rows("kstream", all, |kind| places[kind.place as usize].0.into()),
            Column::from_rows("kpool", all, |kind| places[kind.place as usize].1.into()),
            Column::from_rows("kcategory", all, |kind| kind.category as u64),
            Column::from_rows("kconfidence", all, |kind| kind.confidence as u64),
            Column::from_rows("kphase", all, |kind| kind.phase.map_or(0, |phase| phase as u64 + 1)),
            Column::from_rows("kvariable", all, |kind| kind.variable as u64),
        ]);
        (columns, all.len())
    }

    fn segments(&self, lives: &MemoryLifetimes, stacks: &mut StackTable, places: &[(u32, u32)]) -> Vec<Column> {
        const SMALL: u64 = 1;
        const EXPANDABLE: u64 = 2;
        let all = &*lives.segments;
        let [mut addr, mut made_by, mut freed_by] = ["saddr", "snode", "sfnode"].map(Column::new);
        for one in all {
            addr.push_change(self.space.offset_of(one.address));
            made_by.push(u64::from(stacks.intern_node(one.made_by)));
            freed_by.push(one.end.map_or(0, |at| u64::from(stacks.intern_node(self.stack_at(at)))));
        }
        let unit = self.space.unit;
        vec![
            Column::from_rows("sstart", all, |one| one.start.into()),
            Column::from_rows("send", all, |one| one.end.map_or(0, u64::from)),
            addr,
            Column::from_rows("ssize", all, |one| one.bytes / unit),
            Column::from_rows("sstream", all, |one| places[one.place as usize].0.into()),
            Column::from_rows("spool", all, |one| places[one.place as usize].1.into()),
            made_by,
            freed_by,
            Column::from_rows("sflags", all, |one| {
                let is_small = lives.places.all[one.place as usize].is_small;
                u64::from(is_small) * SMALL + u64::from(one.is_expandable) * EXPANDABLE
            }),
        ]
    }
}

/// The data, and the bytes of it that belong to `scaling`.
fn deflate(header: &[u8], fixed: &[&Column], scaling: &[Column]) -> io::Result<(Vec<u8>, usize)> {
    let mut out = DeflateEncoder::new(Vec::new(), Compression::default());
    out.write_all(&to_u32(header.len()).to_le_bytes())?;
    out.write_all(header)?;
    fixed.iter().try_for_each(|column| out.write_all(&column.bytes))?;
    out.flush()?;
    let fixed_bytes = out.get_ref().len();
    scaling.iter().try_for_each(|column| out.write_all(&column.bytes))?;
    let blob = out.finish()?;
    let scaling_bytes = blob.len() - fixed_bytes;
    Ok((blob, scaling_bytes))
}

/// PyTorch rounds all addresses and sizes to this many bytes (`kMinBlockSize`).
const UNIT: u64 = 512;

/// Units between two regions, so that ranges that are not adjacent in memory do not touch on the tape.
const REGION_GAP: u64 = 1;

/// Maps device addresses to a line without the gaps between segments, which the page draws as one tape: the regions of the
/// address space, one after the other.
#[derive(Debug)]
struct AddressMap {
    /// In bytes: the largest power of two up to [`UNIT`] that divides all addresses and sizes.
    unit: u64,
    /// Start address, end address, and the number of units before the region.
    regions: Vec<(u64, u64, u64)>,
}

impl AddressMap {
    fn new(lives: &MemoryLifetimes) -> Self {
        let MemoryLifetimes { allocations, segments, .. } = lives;
        let bits = allocations.iter().fold(UNIT, |bits, one| bits | one.address | lives.kind_of(one).bytes);
        let bits = segments.iter().fold(bits, |bits, one| bits | one.address | one.bytes);
        let unit = 1 << bits.trailing_zeros();
        let mut units = 0_u64;
        let regions = joined_ranges(segments.iter()).into_iter().map(|(from, to)| {
            let before = units;
            units = units.saturating_add((to - from) / unit).saturating_add(REGION_GAP);
            (from, to, before)
        });
        Self { unit, regions: regions.collect() }
    }

    /// The position of `address` on the tape, in units.
    fn offset_of(&self, address: u64) -> u64 {
        let after = self.regions.partition_point(|(from, ..)| *from <= address);
        let region = after.checked_sub(1).and_then(|at| self.regions.get(at));
        region.map_or(0, |(from, _, before)| before.saturating_add((address - from) / self.unit))
    }

    /// Start address in hexadecimal and length in units of each region, including the gap after it.
    fn regions(&self) -> Vec<(String, u64)> {
        let regions = self.regions.iter();
        regions
            .map(|(from, to, _)| (format!("{from:#x}"), ((to - from) / self.unit).saturating_add(REGION_GAP)))
            .collect()
    }
}

/// The time of each entry in microseconds since the first, if recorded. Those of a long trace are rounded down: exact, the
/// times of 15.8 million entries alone exceed the budget of a page.
fn times(device: DeviceStudy<'_, '_>) -> Option<Column> {
    let (trace, window) = (device.device(), device.window());
    let start = trace.time_us(window.start)?;
    let last = trace.time_us(window.end - 1).unwrap_or(start);
    let step = time_step(last.saturating_sub(start), window.len() as u64);
    let mut times = Column::new("time");
    for time_us in window.map(|entry| trace.time_us(entry).unwrap_or(start)) {
        times.push_change(time_us.wrapping_sub(start) / step * step);
    }
    Some(times)
}

fn time_step(duration_us: u64, entries: u64) -> u64 {
    if entries > MAX_EXACT_TIMES { (duration_us / TIME_STEPS).max(1) } else { 1 }
}

const MAX_EXACT_TIMES: u64 = 1 << 21;
/// Distinct times of a longer trace: a hundred for each column of pixels.
const TIME_STEPS: u64 = 1 << 18;

/// `kept`: the lines that keep memory after every step; `map`: the map of the device's memory, where the free memory is that
/// the request could not use; `time`: the timeline, its last steps or the peak.
fn find_proof(report: &DeviceReport) -> &'static str {
    let leaks = &report.leaks;
    let is_kept = leaks.kind == Some(GrowthKind::Kept) && !leaks.suspects.is_empty();
    match report.ooms.last() {
        Some(oom) if is_kept && report.explaining_growth(oom).is_some() => "kept",
        Some(oom) if is_in_map(oom.verdict) => "map",
        None if is_kept && report.is_growth_notable() => "kept",
        _ => "time",
    }
}

/// Whether a failure is for memory that is free, but not for the request.
pub(crate) fn is_in_map(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Fragmentation | Verdict::OtherStream | Verdict::PrivatePool | Verdict::PendingFree)
}

/// Variables beyond this number share the last row.
const MAX_VARIABLES: usize = 1000;

/// The rows of the header: allocations without a variable first, then the variables that keep the most memory.
fn variable_rows(device: DeviceStudy<'_, '_>) -> Vec<Value> {
    let Some(variables) = device.variables() else { return Vec::new() };
    let named = (0..variables.count().min(MAX_VARIABLES)).map(|index| {
        let kept = variables.row(index, device.stacks());
        (keeper_name(&kept), keeper_details(&kept).join("; "))
    });
    let freed = ("freed before the snapshot".to_owned(), String::new());
    let rest = (variables.count() > MAX_VARIABLES).then(|| ("all other variables".to_owned(), String::new()));
    let rows = [freed].into_iter().chain(named).chain(rest);
    rows.map(|(name, about)| json!({ "name": name, "about": about })).collect()
}

/// The row of an allocation.
fn row_of(variable: Option<usize>) -> usize {
    variable.map_or(0, |index| index.min(MAX_VARIABLES) + 1)
}

#[cfg(test)]
mod tests {
    use super::{MAX_EXACT_TIMES, MAX_VARIABLES, row_of, time_step};

    #[test]
    fn times_of_long_traces_are_rounded() {
        let steps = [(90 << 18, MAX_EXACT_TIMES), (90 << 18, MAX_EXACT_TIMES + 1), (5, MAX_EXACT_TIMES + 1)];
        assert_eq!(steps.map(|(duration_us, entries)| time_step(duration_us, entries)), [1, 90, 1]);
    }

    #[test]
    fn variables_beyond_the_limit_share_a_row() {
        assert_eq!([None, Some(0), Some(5)].map(row_of), [0, 1, 6]);
        assert_eq!([999, 1000, 5000].map(Some).map(row_of), [MAX_VARIABLES, MAX_VARIABLES + 1, MAX_VARIABLES + 1]);
    }
}

//! The rows of the tables at a moment.

use std::cmp::Reverse;

use super::palette::{OTHER, Slot, line_slot};
use super::recording::{BY_LINE, Group, Grouping, Moment, Recording};
use crate::allocator::device::{GPUS, GpuModel};
use crate::analysis::DeviceReport;
use crate::base::ids::StackId;
use crate::base::units::{count, signed_difference, size};
use crate::snapshot::Stacks;
use crate::study::DeviceStudy;
use crate::study::attribution::Category;
use crate::study::lifetimes::AllocationLifetime;
use crate::whatif::Sureness;
use crate::whatif::program::ProgramRow;
use crate::whatif::{Conditions, TriedKind, TriedMark, candidates_with_use};

/// A group that holds memory at a moment.
#[derive(Debug, Clone)]
pub(super) struct HolderRow {
    pub(super) name: String,
    /// The category of these bytes; `None` unless grouped by line.
    pub(super) category: Option<Category>,
    pub(super) slot: Slot,
    pub(super) is_guess: bool,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    /// Bytes more than at the marked moment.
    pub(super) change: i64,
    /// The stack of the largest block.
    pub(super) stack: StackId,
}

/// Something to try in a replay.
#[derive(Debug, Clone)]
pub(super) struct TriedEntry {
    pub(super) name: String,
    /// `None` if it was not tried.
    pub(super) mark: Option<TriedMark>,
    pub(super) outcome: String,
    pub(super) reserved: String,
    pub(super) sure: &'static str,
    /// `None` for conditions that the user types.
    pub(super) conditions: Option<Conditions>,
}

/// The groups with memory at `moment`, the largest first; if a moment is `marked`, the largest change first. Only the
/// allocations in the first group of `found`, if there is one. Each has the colour that its largest block has in `colours`.
pub(super) fn holders(
    recording: &Recording,
    grouping: &Grouping,
    colours: &Grouping,
    found: Option<&Grouping>,
    moment: Moment,
    marked: Option<Moment>,
) -> Vec<HolderRow> {
    let is_by_line = grouping.word == BY_LINE;
    // A line has a row for each category.
    let parts = if is_by_line { Category::ALL.len() } else { 1 };
    let count = if is_by_line { recording.lines.len() * parts } else { grouping.groups.len() };
    let row_of = |index: usize| {
        let of_line = || recording.line_of[index] as usize * parts + recording.allocations[index].category as usize;
        if is_by_line { of_line() } else { usize::from(grouping.of[index]) }
    };
    let none = HolderRow {
        name: String::new(),
        category: None,
        slot: OTHER,
        is_guess: false,
        bytes: 0,
        blocks: 0,
        change: 0,
        stack: Stacks::EMPTY,
    };
    let (mut rows, mut before, mut largest) = (vec![none; count], vec![0; count], vec![0; count]);
    let is_found = |index: &usize| found.is_none_or(|found| found.of[*index] == 0);
    let mut add = |index: usize, is_now: bool| {
        let (one, at) = (&recording.allocations[index], row_of(index));
        let row = &mut rows[at];
        if is_now {
            row.bytes = row.bytes.saturating_add(one.bytes);
            row.blocks += 1;
        } else {
            before[at] += one.bytes;
        }
        if one.bytes > largest[at] {
            let group = &colours.groups[usize::from(colours.of[index])];
            (row.slot, row.is_guess) = (group.slot, group.is_guess);
            (largest[at], row.stack) = (one.bytes, one.made_by);
        }
    };
    recording.live(moment).filter(is_found).for_each(|index| add(index, true));
    marked.into_iter().flat_map(|marked| recording.live(marked)).filter(is_found).for_each(|index| add(index, false));
    if marked.is_some() {
        rows.iter_mut().zip(&before).for_each(|(row, before)| row.change = signed_difference(*before, row.bytes));
    }
    for (at, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.bytes > 0 || row.change != 0) {
        row.name.clone_from(if is_by_line { &recording.lines[at / parts] } else { &grouping.groups[at].name });
        row.category = Category::ALL.get(at % parts).copied().filter(|of| is_by_line && *of != Category::Other);
    }
    rows.retain(|row| !row.name.is_empty());
    rows.sort_by_key(|row| (Reverse(row.change.unsigned_abs()), Reverse(row.bytes)));
    rows
}

/// Settings to try on `device`, which takes as long as its analysis.
pub(super) fn candidates(device: DeviceStudy<'_, '_>) -> Vec<String> {
    candidates_with_use(device).into_iter().map(|candidate| candidate.option).collect()
}

/// The replays for the last failed request in `report`, then `candidates` and devices to try.
pub(super) fn tried(
    device: DeviceStudy<'_, '_>,
    report: Option<&DeviceReport>,
    candidates: &[String],
) -> Vec<TriedEntry> {
    let mut entries = Vec::new();
    if device.device().is_empty() {
        return entries;
    }
    for row in report.into_iter().flat_map(|report| &report.tried) {
        let changes = report.into_iter().flat_map(|report| &report.changes);
        let change = changes.filter(|_| row.kind == TriedKind::Program).find(|change| change.description == row.what);
        let options = if row.kind == TriedKind::Settings { row.what.clone() } else { String::new() };
        let frame = row.location.as_ref().and_then(|location| location.frame.as_ref());
        let place = frame.map_or_else(String::new, |frame| format!("  {}", frame.brief_label()));
        entries.push(TriedEntry {
            name: row.what.clone() + &place,
            mark: Some(row.mark),
            outcome: row.describe_then(),
            reserved: row.reached_reserved_bytes().map_or_else(String::new, size),
            sure: if row.sure == Sureness::Checked { "" } else { row.sure.word() },
            conditions: Some(Conditions { options, change: change.map(ProgramRow::key), ..Conditions::default() }),
        });
    }
    let untried = |name: &str, outcome, conditions| TriedEntry {
        name: name.to_owned(),
        mark: None,
        outcome,
        reserved: String::new(),
        sure: "",
        conditions,
    };
    for option in candidates {
        if entries.iter().all(|entry: &TriedEntry| entry.name != *option) {
            let conditions = Conditions { options: option.clone(), ..Conditions::default() };
            entries.push(untried(option, String::new(), Some(conditions)));
        }
    }
    let on_gpu = |gpu: &GpuModel| {
        let capacity = Some(gpu.usable_bytes());
        let conditions = Conditions { capacity, ..Conditions::default() };
        untried(gpu.name, format!("has {}", size(gpu.usable_bytes())), Some(conditions))
    };
    entries.extend(GPUS.iter().map(on_gpu));
    entries.push(untried("another capacity or other settings", "Enter asks for them".to_owned(), None));
    entries
}

/// The matches of a search, and all else.
pub(super) fn search_groups(text: &str) -> Vec<Group> {
    let group = |name: String, slot| Group { name, slot, is_guess: false };
    vec![group(format!("matches of {text}"), line_slot(0)), group("everything else".to_owned(), OTHER)]
}

/// `2.0 MiB of activations at 0x7f.., entries 12 to 345`
pub(super) fn describe_block(one: &AllocationLifetime) -> String {
    let from = match one.start.checked_sub(1) {
        Some(entry) => format!("from entry {}", count(entry.into())),
        None => "from before the recording".to_owned(),
    };
    let to =
        one.freed_at.map_or_else(|| ", never freed".to_owned(), |at| format!(" to {}", count((at.max(1) - 1).into())));
    let category = one.category.word().replace('-', " ");
    format!("{} {category} at {:#x}, {from}{to}", size(one.bytes), one.address)
}

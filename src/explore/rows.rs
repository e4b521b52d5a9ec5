//! The rows of the tables at a moment.

use std::cmp::Reverse;

use super::palette::{OTHER, Slot};
use super::recording::{BY_LINE, Grouping, Moment, Recording};
use crate::base::ids::StackId;
use crate::base::units::{count, signed_difference, size};
use crate::study::attribution::Category;

/// A group that holds memory at a moment.
#[derive(Debug, Clone, Default)]
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

/// The groups with memory at `moment`, the largest first; if a moment is `marked`, the largest change first. Each has
/// the colour that its largest block has in `colours`.
pub(super) fn holders(
    recording: &Recording,
    grouping: &Grouping,
    colours: &Grouping,
    moment: Moment,
    marked: Option<Moment>,
) -> Vec<HolderRow> {
    let is_by_line = grouping.word == BY_LINE;
    // A line has a row for each category.
    let parts = if is_by_line { Category::ALL.len() } else { 1 };
    let count = if is_by_line { recording.lines.len() * parts } else { grouping.groups.len() };
    let none = HolderRow { slot: OTHER, ..HolderRow::default() };
    let (mut rows, mut before, mut largest) = (vec![none; count], vec![0; count], vec![0; count]);
    let now = recording.live(moment).map(|index| (index, true));
    let then = marked.into_iter().flat_map(|marked| recording.live(marked)).map(|index| (index, false));
    for (index, is_now) in now.chain(then) {
        let (one, bytes) = (&recording.allocations[index], recording.bytes[index]);
        let line = recording.line_of[index] as usize;
        let at = if is_by_line { line * parts + one.category as usize } else { grouping.of[index].into() };
        let row = &mut rows[at];
        if is_now {
            row.bytes = row.bytes.saturating_add(bytes);
            row.blocks += 1;
        } else {
            before[at] += bytes;
        }
        if bytes > largest[at] {
            let group = &colours.groups[usize::from(colours.of[index])];
            (row.slot, row.is_guess) = (group.slot, group.is_guess);
            (largest[at], row.stack) = (bytes, one.made_by);
        }
    }
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

/// `2.0 MiB of activations at 0x7f.., entries 12 to 345`
pub(super) fn describe_block(recording: &Recording, row: usize) -> String {
    let one = &recording.allocations[row];
    let from = match one.start.checked_sub(1) {
        Some(entry) => format!("from entry {}", count(entry.into())),
        None => "from before the recording".to_owned(),
    };
    let to = one.freed_at().map(|at| format!(" to {}", count((at.max(1) - 1).into())));
    let to = to.unwrap_or_else(|| ", never freed".to_owned());
    let category = one.category.word().replace('-', " ");
    format!("{} {category} at {:#x}, {from}{to}", size(recording.bytes[row]), one.address)
}

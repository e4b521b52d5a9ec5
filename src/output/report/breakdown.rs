//! Live memory at the failure or the peak by category and phase, and the lines that hold memory at the snapshot.

use std::iter::repeat;

use super::phrases::{location_details, operation_label, step_label};
use crate::analysis::DeviceReport;
use crate::base::units::{count, percent, ratio};
use crate::output::document::{Cell, Document, Table, TableOf, Text, amount, code, faint};
use crate::output::wording::{
    category_label, describe_position_on, guessed_label, keeper_details, keeper_name, location_label,
};
use crate::stacks::phases::Phase;
use crate::study::attribution::{Category, Confidence, MemoryBreakdown};
use crate::study::memory::{BlockSum, Holder, NamedShare, Share};
use crate::study::variables::KeptByVariable;

/// Appends the breakdown of live memory, if it is informative.
pub(super) fn breakdown(document: &mut Document, device: &DeviceReport) {
    let Some((held, moment)) = shown_breakdown(device) else { return }; // nothing is known about it
    let rows = breakdown_rows(held);
    if rows.is_empty() {
        return;
    }
    let during = step_label(held.step, held.phase).map_or_else(String::new, |label| format!(" ({label})"));
    document.heading(format!("Where the memory was {moment}{during}"));
    let table = Table::from_rows(rows)
        .text("", |(group, _)| *group)
        .text("", |(_, (name, ..))| name.clone())
        .number("bytes", |(_, (_, share, _))| amount(share.bytes))
        .number("share", |(_, (_, share, _))| percent(share.share_ratio))
        .text("", |(_, (.., note))| *note);
    document.table(table);
}

/// Appends the lines that hold the memory at the point shown.
pub(super) fn live_by_line(document: &mut Document, device: &DeviceReport) {
    let all = allocated(device);
    if all.bytes > 0 {
        let held = device.moment.map(|at| format!("held the allocated memory {}", describe_position_on(device, at)));
        let held = held.unwrap_or_else(|| "holds the allocated memory".to_owned());
        document.heading(format!("Who {held}, by line"));
        let rows = device.top_lines.iter().map(|line| {
            HeldRow::new(holder(line), line.category.zip(line.category_confidence), line.bytes, line.blocks)
        });
        document.table(held_table("allocated by", rows, all));
    }
}

/// A line, with its operation.
fn holder(held: &Holder) -> Cell {
    let operation = operation_label(held.operation.as_deref(), held.operation_share_ratio);
    let below = location_details(&held.location).into_iter().chain(operation);
    Cell::with_details(location_label(&held.location), below.collect())
}

/// The breakdown to show and its name: the one of `--at`, else of the last failure, else of the peak. `None` if nothing
/// is known about it.
fn shown_breakdown(device: &DeviceReport) -> Option<(&MemoryBreakdown, String)> {
    let position = device.moment.map(|at| describe_position_on(device, at));
    let requested = device.at_moment.as_ref().zip(position.or_else(|| Some("at the snapshot".to_owned())));
    let failure = device.ooms.last().and_then(|oom| oom.held.as_ref());
    let failure = failure.map(|held| (held, "at the failure".to_owned()));
    requested.or(failure).or_else(|| device.at_peak.as_ref().map(|held| (held, "at its peak".to_owned())))
}

/// The rows of the breakdown, without uninformative groups: the group in its first row, and name, share and note.
fn breakdown_rows(held: &MemoryBreakdown) -> Vec<(&'static str, (String, Share, &'static str))> {
    let categories = held.by_category.iter().map(|of| {
        let note = match of.confidence {
            _ if of.category == Category::Other => "",
            Confidence::Known => "known",
            Confidence::High => "",
            Confidence::Medium => "probably",
            Confidence::Low => "a guess",
        };
        (category_label(of.category), of.share, note)
    });
    let has_categories = held.by_category.iter().any(|row| row.category != Category::Other);
    let has_phases = held.by_phase.iter().filter_map(|row| row.name.as_deref()).any(|name| name != Phase::Other.word());
    let groups: [(&str, bool, Vec<_>); 3] = [
        ("for", has_categories, categories.collect()),
        ("by rule", !held.by_rule.is_empty(), named_rows(&held.by_rule, "no rule")),
        ("allocated in", has_phases, named_rows(&held.by_phase, "before the recording")),
    ];
    let groups = groups.into_iter().filter(|(_, is_informative, _)| *is_informative);
    groups.flat_map(|(group, _, rows)| [group].into_iter().chain(repeat("")).zip(rows)).collect()
}

fn named_rows(rows: &[NamedShare], nameless: &str) -> Vec<(String, Share, &'static str)> {
    rows.iter().map(|row| (row.name.as_deref().unwrap_or(nameless).to_owned(), row.share, "")).collect()
}

/// A category and how sure it is; `None` if it is not known.
type Classification = Option<(Category, Confidence)>;

/// A row of the table.
pub(super) struct HeldRow {
    holder: Cell,
    category: Classification,
    sum: BlockSum,
}

impl HeldRow {
    pub(super) fn new(holder: impl Into<Cell>, category: Classification, bytes: u64, blocks: u64) -> Self {
        let category = category.filter(|(category, _)| *category != Category::Other);
        Self { holder: holder.into(), category, sum: BlockSum { bytes, blocks } }
    }
}

/// A row for each of `holders`, with its share of `all`, and one for what is left. Categories have a column if any is
/// known.
pub(super) fn held_table(by: &'static str, holders: impl Iterator<Item = HeldRow>, all: BlockSum) -> TableOf<HeldRow> {
    let mut rows: Vec<HeldRow> = holders.collect();
    let rest = rows.iter().fold(all, |rest, row| rest.minus(row.sum));
    rows.extend((rest.bytes > 0).then(|| HeldRow::new(faint("everything else"), None, rest.bytes, rest.blocks)));
    let has_category = rows.iter().any(|row| row.category.is_some());
    Table::from_rows(rows)
        .text(by, |row| row.holder.clone())
        .text("", |row| row.category.map_or_else(String::new, |(of, sure)| guessed_label(of, sure)))
        .only_if(has_category)
        .number("bytes", |row| amount(row.sum.bytes))
        .number("share", |row| percent(ratio(row.sum.bytes, all.bytes)))
        .number("blocks", |row| count(row.sum.blocks))
        .optional()
}

/// Appends the table of variables, if the recorder named any.
pub(super) fn kept_by_variable(document: &mut Document, device: &DeviceReport) {
    let Some(kept) = device.kept_by.as_ref().filter(|kept| !kept.top.rows.is_empty()) else { return };
    document.heading("What keeps the allocated memory, by variable");
    let rows = kept.top.rows.iter().map(|row| HeldRow::new(variable_holder(row), None, row.bytes, row.blocks));
    document.table(held_table("kept by", rows, allocated(device)));
    if !kept.complete {
        document.paragraph("The recorder had no time to look at every object of the program.");
    }
}

/// Appends the table of memory that the program annotated, if there is any.
pub(super) fn annotated(document: &mut Document, device: &DeviceReport) {
    let Some(annotated) = &device.annotated else { return };
    document.heading("Allocated memory that the program annotated");
    let rows = annotated.rows.iter().map(|row| {
        HeldRow::new(code(row.name.as_deref().unwrap_or_default()), None, row.share.bytes, row.share.blocks)
    });
    document.table(held_table("annotation", rows, allocated(device)));
}

/// All live blocks at the position shown.
pub(super) fn allocated(device: &DeviceReport) -> BlockSum {
    let all = &device.memory.blocks.active_allocated;
    BlockSum { bytes: all.bytes, blocks: all.count }
}

fn variable_holder(kept: &KeptByVariable) -> Cell {
    let name = if kept.name.is_some() { code(keeper_name(kept)) } else { keeper_name(kept).into() };
    let allocated = kept.name.is_none().then(|| format!("allocated by {}", kept.allocated_by.label()));
    Cell::with_details(name, keeper_details(kept).into_iter().chain(allocated).map(Text::from).collect())
}

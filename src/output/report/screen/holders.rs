//! The holders of the memory, variables by name if the recorder named them, else source lines; and growth.

use itertools::Itertools as _;

use crate::allocator::verdict::Verdict;
use crate::analysis::DeviceReport;
use crate::analysis::failure::JudgedRequest;
use crate::base::units::{count, percent, size};
use crate::output::document::{Document, Table, Text, amount, code, faint, source_location};
use crate::output::report::breakdown::{HeldRow, allocated, held_table};
use crate::output::wording::{container_label, frame_label, guessed_label, keeper_name, location_label, type_label};
use crate::snapshot::{Author, RootKind, TensorKind};
use crate::stacks::frames::{CodeLocation, FrameReport};
use crate::study::attribution::{ByCategory, Category, Confidence, MemoryBreakdown};
use crate::study::memory::{BlockSum, Holder};
use crate::study::variables::KeptByVariable;

/// Blocks in the way, at most.
const MAX_BLOCKERS: usize = 3;
/// Smaller categories are not listed.
const MIN_CATEGORY_RATIO: f64 = 0.01;

/// With more memory of unknown purpose, the rest says little.
const MAX_OTHER_RATIO: f64 = 0.9;

/// Appends the table of who holds `held`, the memory of `device` at that time, or what it holds at the snapshot.
pub(super) fn add_holders(document: &mut Document, device: &DeviceReport, held: Option<&MemoryBreakdown>, rows: usize) {
    let all =
        held.map_or_else(|| allocated(device), |held| BlockSum { bytes: held.allocated_bytes, blocks: held.blocks });
    if all.bytes == 0 {
        return;
    }
    let shown: Vec<HeldRow> = match held.filter(|held| !held.by_variable.is_empty()) {
        Some(held) => held.by_variable.iter().take(rows).map(variable).collect(),
        None => lines(held.map_or(&device.top_lines, |held| &held.by_line.rows), rows),
    };
    let categories = held.and_then(|held| categories(&held.by_category)).map(faint);
    let at_peak = device.moment.is_none() && device.oom_count == 0 && all.bytes > device.memory.allocated_bytes;
    let by = if at_peak { "held at the peak by" } else { "held by" };
    document.table(held_table(by, shown.into_iter(), all).wide().note(categories));
}

/// The first `rows` of `held`.
fn lines(held: &[Holder], rows: usize) -> Vec<HeldRow> {
    let held = &held[..rows.min(held.len())];
    let rows = held.iter().map(|line| {
        let operation = line.operation.as_deref().and_then(|operation| operation.rsplit(' ').next());
        let operation = operation.map_or_else(Text::default, |name| faint(format!("  {name}")));
        // Callers tell rows of one line apart.
        let CodeLocation { frame, backward, called_from, .. } = &line.location;
        let mut same = held.iter().map(|other| &other.location);
        let is_called_twice =
            same.any(|other| (&other.frame, &other.backward) == (frame, backward) && other.called_from != *called_from);
        let caller = called_from.as_ref().filter(|_| is_called_twice);
        let caller = caller.map_or_else(Text::default, |caller| faint(" ← ").and(caller_label(caller, line)));
        let holder = location_label(&line.location).and(caller).and(operation);
        HeldRow::new(holder, line.category.zip(line.category_confidence), line.bytes, line.blocks)
    });
    rows.collect()
}

/// `:12` in the file of the line itself, `train.py:12` in another.
fn caller_label(caller: &FrameReport, line: &Holder) -> Text {
    let is_same = line.location.frame.as_ref().is_some_and(|frame| frame.file == caller.file);
    source_location(if is_same { "" } else { &caller.file }, &format!(":{}", caller.line))
}

fn variable(kept: &KeptByVariable) -> HeldRow {
    HeldRow::new(variable_label(kept), kept.category.zip(kept.category_confidence), kept.bytes, kept.blocks)
}

/// A variable: its name, the container or type, and where it is filled or allocated.
fn variable_label(kept: &KeptByVariable) -> Text {
    // A local variable of PyTorch is the running call's.
    if kept.author == Some(Author::Pytorch) && kept.root == Some(RootKind::Frame) {
        return location_label(&kept.allocated_by);
    }
    let name = match (&kept.container, &kept.name) {
        (Some(container), _) => code(&*container.name),
        (None, Some(_)) => code(keeper_name(kept)),
        (None, None) => keeper_name(kept).into(),
    };
    // A model or an optimizer has many types.
    let is_one = matches!(kept.kind, Some(TensorKind::Saved | TensorKind::Variable) | None);
    let what = match (&kept.container, kept.is_graph()) {
        (Some(container), true) => Some(container_label(container) + ", graphs"),
        (Some(container), false) => Some(container_label(container)),
        (None, true) => Some("autograd graph".to_owned()),
        (None, false) => type_label(kept).filter(|_| is_one),
    };
    let what = what.map_or_else(Text::default, |what| format!(" ({what})").into());
    let filled = kept.container.as_ref().and_then(|container| container.filled_at.as_ref());
    name.and(what).and("  ").and(filled.map_or_else(|| location_label(&kept.allocated_by), frame_label))
}

/// `activations 91% · optimizer state 5%`, for memory whose purpose is known; `None` if that is hardly any.
fn categories(rows: &[ByCategory]) -> Option<String> {
    let mut others = rows.iter().filter(|row| row.category == Category::Other);
    if others.any(|row| row.share.share_ratio > MAX_OTHER_RATIO) {
        return None;
    }
    let large = rows.iter().filter(|row| row.category != Category::Other);
    let mut large = large.filter(|row| row.share.share_ratio >= MIN_CATEGORY_RATIO);
    let labels = large
        .clone()
        .map(|row| format!("{} {}", guessed_label(row.category, row.confidence), percent(row.share.share_ratio)));
    let labels = labels.format(" · ").to_string();
    let has_guess = large.any(|row| row.confidence == Confidence::Low);
    let legend = if has_guess { "   (?: a guess)" } else { "" };
    (!labels.is_empty()).then(|| format!("{labels}{legend}"))
}

/// Appends the table of what keeps the growing memory.
pub(super) fn add_growth(document: &mut Document, device: &DeviceReport, rows: usize) {
    let leaks = &device.leaks;
    if leaks.suspects.is_empty() {
        return;
    }
    let variable = leaks.variable.as_ref();
    let variable = variable.map(|kept| (variable_label(kept), leaks.bytes_per_step, kept.bytes, kept.blocks));
    // The lines of what a variable keeps are its parts.
    let part = if variable.is_some() { "  allocated at " } else { "" };
    let lines = leaks.suspects.iter().take(rows).map(|suspect| {
        let label = faint(part).and(location_label(&suspect.location));
        (label, suspect.bytes_per_step, suspect.bytes, suspect.blocks)
    });
    let table = Table::from_rows(variable.into_iter().chain(lines))
        .text("grows at", |(holder, ..)| holder.clone())
        .number("a step", |(_, a_step, ..)| amount(*a_step))
        .number("now", |(_, _, now, _)| amount(*now))
        .number("blocks", |(.., blocks)| count(*blocks));
    document.table(table.wide());
}

/// Appends the table of blocks that keep free memory apart, if that is why `oom` failed; returns whether it is.
pub(in crate::output::report) fn add_blockers(document: &mut Document, oom: &JudgedRequest) -> bool {
    // If live memory or a limit is the reason, no block in particular is in the way.
    let keeps_apart = matches!(oom.verdict, Verdict::Fragmentation | Verdict::OtherStream | Verdict::PrivatePool);
    if !keeps_apart || oom.blockers.is_empty() {
        return false;
    }
    let table = Table::from_rows(oom.blockers.iter().take(MAX_BLOCKERS))
        .text("in the way", |blocker| location_label(&blocker.location))
        .number("free around it", |blocker| size(blocker.bytes_unlocked))
        .number("holds", |blocker| size(blocker.bytes_held))
        .number("blocks", |blocker| count(blocker.blocks));
    document.table(table.wide());
    true
}

//! The first screen of a snapshot: what happened, where the memory is, who holds it, what was tried, what to do.
//!
//! In: the report of one snapshot. Out: blocks that fit on a screen of 100 columns and 40 lines. Each fact stands once:
//! a location in full only in the headline, figures of the device only in the bar.

mod failure;
mod holders;
mod notes;
mod ranks;
mod usage;

pub(super) use self::failure::callers;
use self::failure::show_failure;
use self::holders::{add_blockers, add_growth, add_holders};
use self::notes::add_notes;
pub(super) use self::ranks::screen_of_ranks;
use self::usage::{requested, usage};
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::output::document::{BarKind, BarPart, Document, Text, code, faint};
use crate::stacks::phases::Phase;
use crate::study::attribution::MemoryBreakdown;

/// Appends the screen of `device`, the one of `snapshot` to look at first; `rows` limits the rows of each table.
pub(super) fn screen(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, rows: usize) {
    let rows = rows.min(MAX_ROWS);
    match device.ooms.last() {
        _ if device.request.is_some() => requested(document, snapshot, device, rows),
        Some(oom) if device.moment.is_none() => show_failure(document, snapshot, device, oom, rows),
        _ => usage(document, snapshot, device, rows),
    }
}

/// Rows of a table on the first screen.
const MAX_ROWS: usize = 5;

/// Adds a part of a bar unless it is empty.
pub(super) fn add_part(parts: &mut Vec<BarPart>, bytes: u64, kind: BarKind, label: impl Into<Text>) {
    if bytes > 0 {
        parts.push(BarPart { bytes, kind, label: label.into() });
    }
}

/// `step 24, forward`
fn moment_label(held: Option<&MemoryBreakdown>) -> Option<String> {
    let held = held?;
    let phase = match held.phase {
        Phase::Init => Some("building the model"),
        Phase::Data => Some("before a forward pass"),
        Phase::Forward => Some("forward"),
        Phase::Backward => Some("backward"),
        Phase::Optimizer => Some("optimizer step"),
        Phase::Other => None,
    };
    let step = held.step.map(|step| format!("step {step}"));
    let parts: Vec<String> = step.into_iter().chain(phase.map(str::to_owned)).collect();
    Some(parts.join(", ")).filter(|label| !label.is_empty())
}

/// A command to paste, and what it shows.
fn add_next(document: &mut Document, command: Option<String>, shows: &str) {
    document.fields("next", command.map(|command| code(command).and(faint(format!("   {shows}")))));
}

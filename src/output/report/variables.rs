//! The variables that keep memory alive.

use super::held::{HeldRow, held_table};
use crate::analysis::DeviceReport;
use crate::output::document::{Cell, Document, Text, code};
use crate::output::wording::{keeper_details, keeper_name};
use crate::study::memory::BlockSum;
use crate::study::variables::KeptByVariable;

/// Appends the table of variables, if the recorder named any.
pub(super) fn kept_by_variable(document: &mut Document, device: &DeviceReport) {
    let Some(kept) = device.kept_by.as_ref().filter(|kept| !kept.top.rows.is_empty()) else { return };
    document.heading("What keeps the allocated memory, by variable");
    let rows = kept.top.rows.iter().map(|row| HeldRow {
        holder: holder(row),
        category: None,
        sum: BlockSum { bytes: row.bytes, blocks: row.blocks },
    });
    document.table(held_table("kept by", rows, allocated(device)));
    if !kept.complete {
        document.paragraph("The recorder had no time to look at every object of the program.");
    }
}

/// Appends the table of memory that the program annotated, if there is any.
pub(super) fn annotated(document: &mut Document, device: &DeviceReport) {
    let Some(annotated) = &device.annotated else { return };
    document.heading("Allocated memory that the program annotated");
    let rows = annotated.rows.iter().map(|row| HeldRow {
        holder: code(row.name.as_deref().unwrap_or_default()).into(),
        category: None,
        sum: BlockSum { bytes: row.share.bytes, blocks: row.share.blocks },
    });
    document.table(held_table("annotation", rows, allocated(device)));
}

/// All live blocks at the position shown.
pub(super) fn allocated(device: &DeviceReport) -> BlockSum {
    let all = &device.memory.blocks.active_allocated;
    BlockSum { bytes: all.bytes, blocks: all.count }
}

fn holder(kept: &KeptByVariable) -> Cell {
    let name = if kept.name.is_some() { code(keeper_name(kept)) } else { keeper_name(kept).into() };
    let allocated = kept.name.is_none().then(|| format!("allocated by {}", kept.allocated_by.label()));
    Cell::WithDetails(name, keeper_details(kept).into_iter().chain(allocated).map(Text::from).collect())
}

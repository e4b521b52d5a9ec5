//! The variables that keep memory alive.

use crate::analysis::DeviceReport;
use crate::base::units::{count, percent, ratio, size};
use crate::output::document::{Cell, Document, Table, Text, code};
use crate::study::variables::KeptByVariable;

/// Appends the table of variables, if the recorder named any.
pub(super) fn kept_by_variable(document: &mut Document, device: &DeviceReport) {
    let Some(kept) = device.kept_by.as_ref().filter(|kept| !kept.top.rows.is_empty()) else { return };
    document.heading("What keeps the allocated memory, by variable");
    let mut rows: Vec<Vec<Cell>> = kept.top.rows.iter().map(row).collect();
    let rest = kept.top.rest;
    if rest.blocks > 0 {
        let share = percent(ratio(rest.bytes, device.memory.allocated_bytes));
        let cells = ["all other variables".to_owned(), size(rest.bytes), share, count(rest.blocks)];
        rows.push(cells.into_iter().map(Cell::from).collect());
    }
    document.table(Table::new(&["kept by", "bytes", "share", "blocks"], &[0], rows));
    if !kept.complete {
        document.paragraph("The recorder had no time to look at every object of the program.");
    }
}

/// Appends the table of memory that the program annotated, if there is any.
pub(super) fn annotated(document: &mut Document, device: &DeviceReport) {
    let Some(annotated) = &device.annotated else { return };
    document.heading("Allocated memory that the program annotated");
    let cells = |bytes, share: f64, blocks, text: Cell| {
        vec![text, size(bytes).into(), percent(share).into(), count(blocks).into()]
    };
    let mut rows: Vec<Vec<Cell>> = annotated
        .rows
        .iter()
        .map(|row| cells(row.share.bytes, row.share.share_ratio, row.share.blocks, code(&*row.text).into()))
        .collect();
    let rest = annotated.rest;
    if rest.blocks > 0 {
        let share = ratio(rest.bytes, device.memory.allocated_bytes);
        rows.push(cells(rest.bytes, share, rest.blocks, "all other annotations".into()));
    }
    document.table(Table::new(&["annotation", "bytes", "share", "blocks"], &[0], rows));
}

fn row(kept: &KeptByVariable) -> Vec<Cell> {
    let name = if kept.name.is_some() { code(kept.holder()) } else { kept.holder().into() };
    let allocated = kept.name.is_none().then(|| format!("allocated by {}", kept.allocated_by.label()));
    let below = kept.details().into_iter().chain(allocated).map(Text::from).collect();
    vec![
        Cell::WithDetails(name, below),
        size(kept.bytes).into(),
        percent(kept.share_ratio).into(),
        count(kept.blocks).into(),
    ]
}

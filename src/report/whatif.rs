//! The answer of `oomscope whatif`.

use super::words::warnings;
use crate::document::{Cell, Document, Table, code};
use crate::units::{count, counted, duration, size};
use crate::whatif::{WhatIfReport, WhatIfRow};

/// The answer as a document.
pub fn whatif(report: &WhatIfReport) -> Document {
    let mut document = Document::default();
    document.title(code(&*report.path));
    let device = match report.capacity_bytes {
        Some(capacity) => format!("on a device of {}", size(capacity)),
        None => {
            "on an unlimited device: no request failed, so the file shows no capacity".to_owned()
        }
    };
    document
        .paragraph(format!("Replayed by the rules of PyTorch {}, {device}", report.torch_version));
    document.paragraph(format!("Lower bound: {} live at once", size(report.lower_bound_bytes)));
    if let Some(gpu) = &report.costs_of {
        document
            .paragraph(format!("Times of device calls are estimated from calls measured on {gpu}"));
    }
    warnings(&mut document, &report.warnings);
    let mut devices: Vec<u64> = report.rows.iter().map(|row| row.device).collect();
    devices.dedup();
    for device in devices {
        let rows: Vec<&WhatIfRow> = report.rows.iter().filter(|row| row.device == device).collect();
        document.heading(format!("Device {device}"));
        // What calls cost says more than how many there are, and settings need the room.
        let header: &[&str] = if rows.iter().any(|row| row.device_time_us.is_some()) {
            &["fails", "peak reserved", "fits from", "allocs", "calls take", "settings"]
        } else {
            &["fails", "peak reserved", "fits from", "allocs", "frees", "retries", "settings"]
        };
        document.table(Table::new(header, &[header.len() - 1], rows.into_iter().map(cells)));
    }
    if let Some(out @ 1..) = report.rows_tried.checked_sub(report.rows.len()) {
        document.paragraph(format!("{} left out by --top", counted(out as u64, "more row")));
    }
    document
}

fn cells(row: &WhatIfRow) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![
        if row.ooms == 0 { "no".into() } else { count(row.ooms as u64).into() },
        size(row.peak_reserved_bytes).into(),
        row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size).into(),
        count(row.device_allocs).into(),
    ];
    match row.device_time_us {
        Some(us) => cells.push(duration(us).into()),
        None => cells.extend([count(row.device_frees), count(row.retries)].map(Cell::from)),
    }
    cells.push(match row.settings.as_str() {
        "" => "as recorded".into(),
        settings => code(settings.replace(',', ", ")).into(),
    });
    cells
}

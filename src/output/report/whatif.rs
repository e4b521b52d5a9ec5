//! The page of `oomscope whatif`.

use super::phrases::add_warnings;
use super::summary::summary;
use crate::base::units::{count, counted, duration, size};
use crate::output::document::{Cell, Document, Table, alarm, code};
use crate::output::wording::{describe_outcome, describe_requirement};
use crate::whatif::{WhatIfDevice, WhatIfReport, WhatIfRow};

/// Lays out `report`.
pub fn whatif(report: &WhatIfReport) -> Document {
    let mut document = Document::default();
    document.title(code(&*report.path));
    summary(&mut document, &report.summary());
    add_warnings(&mut document, &report.warnings);
    document.paragraph(format!("Replayed by the rules of PyTorch {}", report.torch_version));
    if let Some(gpu) = &report.costs_of {
        document.paragraph(format!("Times of device calls are estimated from calls measured on {gpu}"));
    }
    let mut rows = report.rows.iter().peekable();
    for device in &report.devices {
        let own = std::iter::from_fn(|| rows.next_if(|row| row.device == device.device));
        self::device(&mut document, device, &own.collect::<Vec<_>>());
    }
    if let Some(out @ 1..) = report.rows_tried.checked_sub(report.rows.len()) {
        document.paragraph(format!("{} left out by --top", counted(out as u64, "more row")));
    }
    document
}

fn device(document: &mut Document, device: &WhatIfDevice, rows: &[&WhatIfRow]) {
    let name = format!("Device {}", device.device);
    document.heading(if device.some_row_serves {
        name.into()
    } else {
        alarm(format!("{name}: no setting that was tried serves every request"))
    });
    document.field(
        "device",
        match device.capacity_bytes {
            Some(capacity) => format!("{} within reach", size(capacity)),
            None => "of unknown size: no request failed, so the file shows no capacity".to_owned(),
        },
    );
    document.field("lower bound", format!("{} live at once", size(device.lower_bound_bytes)));
    if device.reserved_before_bytes > 0 {
        document.field(
            "start",
            format!(
                "the recording started with {} reserved, which every replay keeps: a smaller device is never \
                 reported as sufficient",
                size(device.reserved_before_bytes)
            ),
        );
    }
    if !device.some_row_serves {
        document.field("needed", describe_requirement(device.verdict.requirement));
    }
    // The cost of calls says more than their number, and the settings need the space.
    let header: &[&str] = if rows.iter().any(|row| row.device_time_us.is_some()) {
        &["the job then", "peak reserved", "fits from", "allocs", "calls take", "settings"]
    } else {
        &["the job then", "peak reserved", "fits from", "allocs", "frees", "retries", "settings"]
    };
    document.table(Table::new(header, &[header.len() - 1], rows.iter().map(|row| cells(row))));
    if device.skips_program {
        document.paragraph("Changes of the program were not tried, because the trace is long: --program tries them");
    }
}

fn cells(row: &WhatIfRow) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![
        describe_outcome(&row.then).into(),
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

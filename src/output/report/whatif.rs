//! The page of `oomscope whatif`: what was tried, the best first, as one table for each device.

use super::notes::{add_notes, add_other_notes};
use super::tried::tried_table;
use crate::base::units::{count, size};
use crate::output::document::{Document, Table, amount, code, faint};
use crate::output::wording::{command_line, describe_outcome, fitting_headline, tried_headline};
use crate::whatif::{WhatIfDevice, WhatIfReport, WhatIfRow};

/// Rows of all tables on the first screen.
const MAX_ROWS: usize = 24;
/// Devices on the first screen.
const MAX_DEVICES: usize = 4;

/// Lays out what was tried with settings and with the program.
pub fn whatif(report: &WhatIfReport) -> Document {
    let (mut document, mut sections) = (Document::default(), Document::default());
    let summary = report.summary();
    let shown_rows = MAX_ROWS / report.devices.len().clamp(1, MAX_DEVICES);
    for (index, device) in report.devices.iter().enumerate() {
        let rows: Vec<&WhatIfRow> = report.rows.iter().filter(|row| row.device == device.device).collect();
        let Some(recorded) = rows.first() else { continue }; // a device has the row of the recorded settings
        add_settings(&mut sections, device, &rows);
        if index >= MAX_DEVICES {
            continue;
        }
        let answer = fitting_headline(device, recorded).or_else(|| tried_headline(&device.tried));
        let context = within_reach(device.device, device.capacity_bytes, device.limit_bytes);
        document.headline(answer.unwrap_or_else(|| summary.answer.as_str().into()), faint(context));
        if index == 0 {
            add_notes(&mut document, &report.warnings);
        }
        if !device.tried.is_empty() {
            let recorded = Some((device, *recorded));
            document.table(tried_table(&device.tried, shown_rows, recorded, device.reserved_before_bytes));
        }
    }
    if report.devices.iter().any(|device| device.skips_program) {
        document.paragraph("Changes of the program were not tried, because the trace is long: --program tries them");
    }
    document.fields("do", summary.action);
    let copy = summary.copy.filter(|text| !text.starts_with("oomscope") && !text.contains(".py:"));
    document.fields("copy", copy.map(code));
    document.fields("next", command_line("analyze", &report.path).map(code));
    add_other_notes(&mut sections, &report.warnings);
    sections.paragraph(format!("Replayed by the rules of PyTorch {}", report.torch_version));
    document.with_sections(sections)
}

/// `GPU 0, 5.86 GiB within reach`
fn within_reach(device: u64, capacity: Option<u64>, limit: Option<u64>) -> String {
    match [capacity, limit].into_iter().flatten().min() {
        Some(capacity) => format!("GPU {device}, {} within reach", size(capacity)),
        None => format!("GPU {device}, of unknown size"),
    }
}

/// Appends the figures of every setting.
fn add_settings(document: &mut Document, device: &WhatIfDevice, rows: &[&WhatIfRow]) {
    document.heading(format!("Settings on GPU {}", device.device));
    if device.reserved_before_bytes > 0 {
        document.paragraph(format!(
            "The recording started with {} reserved, which every replay keeps: a smaller device is never reported as \
             sufficient",
            size(device.reserved_before_bytes)
        ));
    }
    let settings = |row: &&&WhatIfRow| match row.settings.as_str() {
        "" => "as recorded".into(),
        settings => code(settings.replace(',', ", ")),
    };
    let table = Table::from_rows(rows)
        .text("settings", settings)
        .text("the job then", |row| describe_outcome(&row.then))
        .number("reserved", |row| amount(row.figures.peak_reserved_bytes))
        .number("fits from", |row| row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size))
        .number("allocs", |row| count(row.figures.device_allocs));
    document.table(table);
}

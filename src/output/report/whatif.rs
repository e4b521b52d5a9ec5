//! The page of `oomscope whatif`: what was tried, the best first, as one table for each device.

use super::notes::{add_notes, add_other_notes};
use super::tried::{Baseline, tried_table};
use crate::base::units::{count, size};
use crate::base::warning::Warning;
use crate::output::document::{Document, Table, Text, amount, code, faint};
use crate::output::wording::{Summary, command_line, describe_outcome, fitting_headline, tried_headline};
use crate::whatif::program::ProgramReport;
use crate::whatif::{TriedRow, WhatIfDevice, WhatIfReport, WhatIfRow};

/// Rows of all tables on the first screen.
const MAX_ROWS: usize = 24;
/// Devices on the first screen.
const MAX_DEVICES: usize = 4;

/// Lays out what was tried with settings, and with the program if that was tried too.
pub fn whatif(report: &WhatIfReport) -> Document {
    let mut document = Document::default();
    let shown = report.devices.len().clamp(1, MAX_DEVICES);
    let summary = report.summary();
    let mut sections = Document::default();
    let mut rows = report.rows.iter().peekable();
    for (index, device) in report.devices.iter().enumerate() {
        let own: Vec<&WhatIfRow> = std::iter::from_fn(|| rows.next_if(|row| row.device == device.device)).collect();
        let Some(recorded) = own.first() else { continue }; // a device has the row of the recorded settings
        if index < shown {
            let baseline = Baseline {
                outcome: &recorded.then,
                reserved_bytes: recorded.continued_peak_bytes,
                live_bytes: device.lower_bound_bytes,
                reserved_before_bytes: device.reserved_before_bytes,
            };
            let context = within_reach(device.device, device.capacity_bytes, device.limit_bytes);
            let notes = if index == 0 { report.warnings.as_slice() } else { &[] };
            let answer = fitting_headline(device, recorded).or_else(|| tried_headline(&device.tried));
            let answer = answer.unwrap_or_else(|| summary.answer.as_str().into());
            add_device(&mut document, notes, (answer, &device.tried), baseline, (context, MAX_ROWS / shown));
        }
        add_settings(&mut sections, device, &own);
    }
    if report.devices.iter().any(|device| device.skips_program) {
        document.paragraph("Changes of the program were not tried, because the trace is long: --program tries them");
    }
    end(&mut document, &summary, &report.path);
    add_other_notes(&mut sections, &report.warnings);
    sections.paragraph(format!("Replayed by the rules of PyTorch {}", report.torch_version));
    document.add_sections(sections);
    document
}

/// Lays out changes to the program alone.
pub fn program(report: &ProgramReport) -> Document {
    let mut document = Document::default();
    let shown = report.devices.len().clamp(1, MAX_DEVICES);
    let summary = report.summary();
    let mut sections = Document::default();
    for (index, device) in report.devices.iter().enumerate() {
        if index < shown {
            let recorded = &device.as_recorded;
            let baseline = Baseline {
                outcome: &recorded.then,
                reserved_bytes: recorded.peak_reserved_bytes,
                live_bytes: recorded.peak_allocated_bytes,
                reserved_before_bytes: 0,
            };
            let context = within_reach(device.device, device.capacity_bytes, None);
            let notes = if index == 0 { report.warnings.as_slice() } else { &[] };
            let tried = device.tried();
            let answer = tried_headline(&tried).unwrap_or_else(|| summary.answer.as_str().into());
            add_device(&mut document, notes, (answer, &tried), baseline, (context, MAX_ROWS / shown));
        }
    }
    end(&mut document, &summary, &report.path);
    add_other_notes(&mut sections, &report.warnings);
    sections.paragraph(format!("Replayed by the rules of PyTorch {}", report.torch_version));
    document.add_sections(sections);
    document
}

/// `GPU 0, 5.86 GiB within reach`
fn within_reach(device: u64, capacity: Option<u64>, limit: Option<u64>) -> String {
    match [capacity, limit].into_iter().flatten().min() {
        Some(capacity) => format!("GPU {device}, {} within reach", size(capacity)),
        None => format!("GPU {device}, of unknown size"),
    }
}

/// Appends the answer and the table of one device, with `rows` rows.
fn add_device(
    document: &mut Document,
    notes: &[Warning],
    (answer, tried): (Text, &[TriedRow]),
    baseline: Baseline<'_>,
    (context, rows): (String, usize),
) {
    document.headline(answer, faint(context));
    add_notes(document, notes);
    if !tried.is_empty() {
        document.table(tried_table(tried, rows, Some(baseline), baseline.reserved_before_bytes));
    }
}

/// Appends the action and the next command.
fn end(document: &mut Document, summary: &Summary, path: &str) {
    document.fields("do", summary.action.as_deref());
    let copy = summary.copy.clone().filter(|text| !text.starts_with("oomscope") && !text.contains(".py:"));
    document.fields("copy", copy.map(code));
    document.fields("next", command_line("analyze", path).map(code));
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

//! The page of `oomscope whatif`: what was tried, the best first, as one table for each device.

use std::borrow::Cow;

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

/// The tries on one device.
struct TriedOn<'r> {
    /// `None` for the answer of the summary.
    answer: Option<Text>,
    /// The device and its size.
    context: String,
    tried: Cow<'r, [TriedRow]>,
    baseline: Baseline<'r>,
}

/// The parts that both reports have.
struct Parts<'r> {
    path: &'r str,
    torch_version: &'r str,
    warnings: &'r [Warning],
    summary: Summary,
}

/// Lays out what was tried with settings, and with the program if that was tried too.
pub fn whatif(report: &WhatIfReport) -> Document {
    let (mut devices, mut sections) = (Vec::new(), Document::default());
    let mut rows = report.rows.iter().peekable();
    for device in &report.devices {
        let own: Vec<&WhatIfRow> = std::iter::from_fn(|| rows.next_if(|row| row.device == device.device)).collect();
        let Some(recorded) = own.first() else { continue }; // a device has the row of the recorded settings
        add_settings(&mut sections, device, &own);
        devices.push(TriedOn {
            answer: fitting_headline(device, recorded).or_else(|| tried_headline(&device.tried)),
            context: within_reach(device.device, device.capacity_bytes, device.limit_bytes),
            tried: Cow::Borrowed(&device.tried),
            baseline: Baseline {
                outcome: &recorded.then,
                reserved_bytes: recorded.continued_peak_bytes,
                live_bytes: device.lower_bound_bytes,
                reserved_before_bytes: device.reserved_before_bytes,
            },
        });
    }
    let skips_program = report.devices.iter().any(|device| device.skips_program);
    let WhatIfReport { path, torch_version, warnings, .. } = report;
    lay_out(devices, skips_program, sections, Parts { path, torch_version, warnings, summary: report.summary() })
}

/// Lays out changes to the program alone.
pub fn program(report: &ProgramReport) -> Document {
    let devices = report.devices.iter().map(|device| {
        let (recorded, tried) = (&device.as_recorded, device.tried());
        TriedOn {
            answer: tried_headline(&tried),
            context: within_reach(device.device, device.capacity_bytes, None),
            tried: Cow::Owned(tried),
            baseline: Baseline {
                outcome: &recorded.then,
                reserved_bytes: recorded.peak_reserved_bytes,
                live_bytes: recorded.peak_allocated_bytes,
                reserved_before_bytes: 0,
            },
        }
    });
    let ProgramReport { path, torch_version, warnings, .. } = report;
    let parts = Parts { path, torch_version, warnings, summary: report.summary() };
    lay_out(devices.collect(), false, Document::default(), parts)
}

/// The page on `devices`, with `sections` below the first screen.
fn lay_out(devices: Vec<TriedOn<'_>>, skips_program: bool, mut sections: Document, parts: Parts<'_>) -> Document {
    let Parts { path, torch_version, warnings, summary } = parts;
    let mut document = Document::default();
    let rows = MAX_ROWS / devices.len().clamp(1, MAX_DEVICES);
    for (index, device) in devices.into_iter().take(MAX_DEVICES).enumerate() {
        document.headline(device.answer.unwrap_or_else(|| summary.answer.as_str().into()), faint(device.context));
        if index == 0 {
            add_notes(&mut document, warnings);
        }
        if !device.tried.is_empty() {
            let before = device.baseline.reserved_before_bytes;
            document.table(tried_table(&device.tried, rows, Some(device.baseline), before));
        }
    }
    if skips_program {
        document.paragraph("Changes of the program were not tried, because the trace is long: --program tries them");
    }
    document.fields("do", summary.action);
    let copy = summary.copy.filter(|text| !text.starts_with("oomscope") && !text.contains(".py:"));
    document.fields("copy", copy.map(code));
    document.fields("next", command_line("analyze", path).map(code));
    add_other_notes(&mut sections, warnings);
    sections.paragraph(format!("Replayed by the rules of PyTorch {torch_version}"));
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

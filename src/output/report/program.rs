//! The page of `oomscope whatif --program`.

use super::phrases::add_warnings;
use super::summary::summary;
use crate::base::units::{signed_size, size};
use crate::output::document::{Cell, Document, Table, alarm, code};
use crate::output::wording::describe_outcome;
use crate::whatif::JobOutcome;
use crate::whatif::program::{ProgramDevice, ProgramReport, ProgramRow};

/// Lays out `report`.
pub fn program(report: &ProgramReport) -> Document {
    let mut document = Document::default();
    document.title(code(&*report.path));
    summary(&mut document, &report.summary());
    add_warnings(&mut document, &report.warnings);
    document.paragraph(format!("Replayed by the rules of PyTorch {}", report.torch_version));
    for device in &report.devices {
        self::device(&mut document, device);
    }
    document
}

fn device(document: &mut Document, device: &ProgramDevice) {
    document.heading(format!("Device {}", device.device));
    document.field(
        "device",
        match device.capacity_bytes {
            Some(capacity) => format!("{} within reach", size(capacity)),
            None => "of unknown size: no request failed, so the file shows no capacity".to_owned(),
        },
    );
    if device.reserved_before_bytes > 0 {
        document.field(
            "start",
            format!(
                "the recording started with {} reserved; the peaks are those of the same requests on an empty pool",
                size(device.reserved_before_bytes)
            ),
        );
    }
    if device.goes_on {
        document.field("continued", "after the failure, by one step like the one before it");
    } else if device.ends_in_failure {
        document
            .field("continued", "unknown: the recording ends with the failure and has no earlier step like this one");
    }
    let is_bounded = device.capacity_bytes.is_some();
    let header: &[&str] = if is_bounded {
        &["change", "peak allocated", "peak reserved", "saved", "the job then", "sure"]
    } else {
        &["change", "peak allocated", "peak reserved", "saved", "sure"]
    };
    let (gains, idle): (Vec<_>, Vec<_>) = device.rows.iter().partition(|row| row.is_gain());
    let rows = [&device.as_recorded].into_iter().chain(gains);
    document.table(Table::new(header, &[0], rows.map(|row| cells(row, is_bounded))));
    if !idle.is_empty() {
        let idle: Vec<&str> = idle.iter().map(|row| row.description.as_str()).collect();
        document.paragraph(format!("Also replayed, without a lower peak: {}", idle.join("; ")));
    }
    if !device.without.is_empty() {
        document.heading("Without a line");
        let header: &[&str] = if is_bounded {
            &["held", "peak allocated", "peak reserved", "saved", "the job then", "line"]
        } else {
            &["held", "peak allocated", "peak reserved", "saved", "line"]
        };
        let rows = device.without.iter().map(|row| without(row, is_bounded));
        document.table(Table::new(header, &[header.len() - 1], rows));
    }
}

fn cells(row: &ProgramRow, is_bounded: bool) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![row.label().into()];
    cells.extend(figures(row, is_bounded));
    cells.push(row.sure.word().into());
    cells
}

fn without(row: &ProgramRow, is_bounded: bool) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![size(row.bytes_at_peak).into()];
    cells.extend(figures(row, is_bounded));
    cells.push(row.location.label().into());
    cells
}

fn figures(row: &ProgramRow, is_bounded: bool) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![
        size(row.peak_allocated_bytes).into(),
        size(row.peak_reserved_bytes).into(),
        signed_size(row.reserved_gain_bytes.saturating_neg()).into(),
    ];
    if is_bounded {
        cells.push(match &row.then {
            then @ JobOutcome::RequestFails { .. } => alarm(describe_outcome(then)).into(),
            then => describe_outcome(then).into(),
        });
    }
    cells
}

//! The answer of `oomscope fit`.

use super::summary::summary;
use super::words::warnings;
use crate::document::{Cell, Document, Table, alarm, code};
use crate::fit::{FitDevice, FitReport, GrowingLine, LawKind, SizeReport};
use crate::units::{count, percent, ratio, signed_size, size};

/// The answer as a document.
pub fn fit(report: &FitReport) -> Document {
    let mut document = Document::default();
    let files = report.recordings.iter().map(|one| format!("{} at {}", one.path, count(one.size)));
    document.title(code(files.collect::<Vec<_>>().join(", ")));
    summary(&mut document, &report.summary);
    warnings(&mut document, &report.warnings);
    document.paragraph(format!("Replayed by the rules of PyTorch {}", report.torch_version));
    for device in &report.devices {
        if report.devices.len() > 1 {
            document.heading(format!("Device {}", device.device));
        }
        self::device(&mut document, device);
    }
    document
}

fn device(document: &mut Document, device: &FitDevice) {
    document.heading("Peak at each size");
    // Without a capacity the bars are of the greatest peak.
    let greatest = device.sizes.iter().map(|of| of.peak_reserved_bytes).max().unwrap_or(0);
    let (whole, of_whole) = match device.capacity_bytes {
        Some(capacity) => (capacity, "of the device"),
        None => (greatest, "of the greatest"),
    };
    let header = ["size", "peak allocated", "peak reserved", of_whole, "fits", ""];
    let rows = device.sizes.iter().map(|of| sizes_row(of, whole));
    document.table(Table::new(&header, &[3, 5], rows));
    if !device.growth.is_empty() {
        document.heading(format!("What the peak at {} is of", count(device.growth_at)));
        let header = ["bytes", "share", "each unit more", "grows", "line"];
        let rest = (device.growth_rest_bytes > 0).then(|| rest_row(device));
        let rows = device.growth.iter().map(growth_row).chain(rest);
        document.table(Table::new(&header, &[3, 4], rows));
    }
    document.heading("What this rests on");
    document.field(
        "paired",
        format!(
            "{} of the memory at the peak of the largest recording, and {} of all that it asks for, is asked for by the \
             same stacks in another",
            percent(device.paired_ratio),
            percent(device.asked_paired_ratio)
        ),
    );
    document.fields(
        "checked",
        device.checked.iter().map(|check| {
            format!(
                "at {}, predicted from the others: {} allocated, {} recorded ({}); {} reserved, {} recorded ({})",
                count(check.size),
                size(check.predicted_allocated_bytes),
                size(check.recorded_allocated_bytes),
                off(check.allocated_error_ratio),
                size(check.predicted_reserved_bytes),
                size(check.recorded_reserved_bytes),
                off(check.reserved_error_ratio),
            )
        }),
    );
    if device.checked.is_empty() {
        document.field(
            "checked",
            "by no third recording: one at another size would tell how far to trust this",
        );
    }
    document.fields(
        "not paired",
        device.unpaired.iter().map(|line| {
            format!("{} by {}", size(line.bytes), line.around.in_short(line.frame.as_ref()))
        }),
    );
}

fn off(error: f64) -> String {
    match error {
        0.0 => "equal".to_owned(),
        more if more > 0.0 => format!("{} too high", percent(more)),
        less => format!("{} too low", percent(-less)),
    }
}

/// `whole` bytes make a whole bar.
fn sizes_row(of: &SizeReport, whole: u64) -> Vec<Cell> {
    vec![
        count(of.size).into(),
        size(of.peak_allocated_bytes).into(),
        size(of.peak_reserved_bytes).into(),
        Cell::Bar(ratio(of.peak_reserved_bytes, whole).min(1.0)),
        match of.fits {
            Some(true) => "yes".into(),
            Some(false) => alarm("no").into(),
            None => "".into(),
        },
        match &of.failed {
            Some(failed) => {
                format!("{} asked for{}", size(failed.requested_bytes), failed.in_short()).into()
            }
            None if of.is_recorded => "recorded".into(),
            None => "".into(),
        },
    ]
}

fn rest_row(device: &FitDevice) -> Vec<Cell> {
    let told: f64 = device.growth.iter().map(|line| line.share_ratio).sum();
    vec![
        size(device.growth_rest_bytes).into(),
        percent((1.0 - told).max(0.0)).into(),
        "".into(),
        "".into(),
        "all other lines, which grow less".into(),
    ]
}

fn growth_row(line: &GrowingLine) -> Vec<Cell> {
    let grows = match line.law {
        LawKind::Constant => "no",
        LawKind::Linear => "in proportion",
        LawKind::Quadratic => "with the square",
        LawKind::Cubic => "with the cube",
        LawKind::Line => "as a line",
        LawKind::Parabola => "as a parabola",
        LawKind::Near => "about as a line",
    };
    vec![
        size(line.bytes).into(),
        percent(line.share_ratio).into(),
        signed_size(line.bytes_per_unit).into(),
        grows.into(),
        line.around.in_short(line.frame.as_ref()).into(),
    ]
}

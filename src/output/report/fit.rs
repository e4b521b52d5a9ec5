//! The answer of `oomscope fit`.

use std::collections::BTreeSet;

use super::summary::summary;
use super::words::warnings;
use crate::base::units::{count, percent, ratio, signed_size, size};
use crate::output::document::{Cell, Document, Table, alarm, code};
use crate::whatif::fit::{
    FitDevice, FitReport, GrowingLine, Largest, LargestAt, LawKind, PredictedFailure, Size,
    SizeReport,
};

/// The answer as a document.
pub fn fit(report: &FitReport) -> Document {
    let mut document = Document::default();
    let files = report.recordings.iter().map(|one| format!("{} at {}", one.path, one.size));
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
    if device.by_second.is_empty() {
        peaks(document, device);
    } else {
        document.heading("The largest with each second number");
        let header = ["with", "size", "to spare", "the next", "with a setting"];
        let rows = device.by_second.iter().map(|of| largest_row(of, device));
        document.table(Table::new(&header, &[3, 4], rows));
        grid(document, device);
    }
    if !device.growth.is_empty() {
        document.heading(format!("What the peak at {} is of", device.growth_size()));
        let header = match device.growth_at_second {
            None => ["bytes", "share", "each unit more", "grows", "line"],
            Some(_) => ["bytes", "share", "one more of the first", "of the second", "line"],
        };
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
                check.size,
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
        let more = if device.growth_at_second.is_none() { "third" } else { "further" };
        document.field(
            "checked",
            format!("by no {more} recording: one at another size would tell how far to trust this"),
        );
    }
    document.fields(
        "not paired",
        device
            .unpaired
            .iter()
            .map(|line| format!("{} by {}", size(line.bytes), line.location.label())),
    );
}

fn peaks(document: &mut Document, device: &FitDevice) {
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
}

/// The largest with one second number.
fn largest_row(of: &LargestAt, device: &FitDevice) -> Vec<Cell> {
    let fits = of.largest.as_ref();
    let size_of = |largest: &Largest| match (largest.to_size(), largest.size) {
        (None, _) => "every size".to_owned(),
        (_, Some(0)) => "none".to_owned(),
        (Some(at), _) => at.to_string(),
    };
    let next = fits.and_then(Largest::to_size).and_then(|fits| device.failing_beyond(fits));
    vec![
        format!("x{}", of.second.unwrap_or(1)).into(),
        fits.map_or("not told".to_owned(), size_of).into(),
        fits.and_then(|fits| fits.unreserved_bytes).map_or(String::new(), size).into(),
        next.map_or(String::new(), |(at, failed)| format!("{at}: {}", asked_for(failed))).into(),
        of.best
            .as_ref()
            .map_or(String::new(), |best| format!("{} with {}", size_of(best), best.settings))
            .into(),
    ]
}

/// Peaks with the first numbers downwards and the second across.
fn grid(document: &mut Document, device: &FitDevice) {
    document.heading("Peak reserved at each size (! does not fit, * recorded)");
    let firsts: BTreeSet<u64> = device.sizes.iter().map(|of| of.size.first).collect();
    let seconds: BTreeSet<Option<u64>> = device.sizes.iter().map(|of| of.size.second).collect();
    let names = seconds.iter().map(|second| format!("x{}", second.unwrap_or(1)));
    let header: Vec<String> = std::iter::once(String::new()).chain(names).collect();
    let cell = |at: Size| -> Cell {
        match device.sizes.iter().find(|of| of.size == at) {
            None => "".into(),
            Some(of) => {
                let bytes = size(of.peak_reserved_bytes);
                match (of.fits, of.is_recorded) {
                    (Some(false), _) => alarm(format!("{bytes} !")).into(),
                    (_, true) => format!("{bytes} *").into(),
                    _ => format!("{bytes}  ").into(),
                }
            }
        }
    };
    let rows = firsts.into_iter().map(|first| {
        let cells = seconds.iter().map(|second| cell(Size { first, second: *second }));
        std::iter::once(count(first).into()).chain(cells).collect::<Vec<Cell>>()
    });
    document.table(Table::new(&header, &[], rows));
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
        of.size.to_string().into(),
        size(of.peak_allocated_bytes).into(),
        size(of.peak_reserved_bytes).into(),
        Cell::Bar(ratio(of.peak_reserved_bytes, whole).min(1.0)),
        match of.fits {
            Some(true) => "yes".into(),
            Some(false) => alarm("no").into(),
            None => "".into(),
        },
        match &of.failed {
            Some(failed) => asked_for(failed).into(),
            None if of.is_recorded => "recorded".into(),
            None => "".into(),
        },
    ]
}

fn asked_for(failed: &PredictedFailure) -> String {
    format!("{} asked for{}", size(failed.requested_bytes), failed.label())
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
    let [more, grows] = match (line.second_bytes_per_unit, line.second_law) {
        (Some(second), Some(law)) => {
            [(line.bytes_per_unit, line.law), (second, law)].map(|(bytes, law)| {
                if bytes == 0 {
                    grows(LawKind::Constant).to_owned()
                } else {
                    format!("{}, {}", signed_size(bytes), grows(law))
                }
            })
        }
        _ => [signed_size(line.bytes_per_unit), grows(line.law).to_owned()],
    };
    vec![
        size(line.bytes).into(),
        percent(line.share_ratio).into(),
        more.into(),
        grows.into(),
        line.location.label().into(),
    ]
}

fn grows(law: LawKind) -> &'static str {
    match law {
        LawKind::Constant => "no",
        LawKind::Linear => "in proportion",
        LawKind::Quadratic => "with the square",
        LawKind::Cubic => "with the cube",
        LawKind::Line => "as a line",
        LawKind::Parabola => "as a parabola",
        LawKind::Near => "about as a line",
    }
}

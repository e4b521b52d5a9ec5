//! The page of `oomscope fit`.

use std::collections::BTreeSet;

use super::phrases::add_warnings;
use super::summary::summary;
use crate::allocator::verdict::Verdict;
use crate::base::units::{count, counted, percent, ratio, signed_size, size};
use crate::output::document::{Cell, Document, Table, alarm, code};
use crate::whatif::fit::{
    FitDevice, FitReport, GrowingLine, Largest, LargestAt, LawKind, PredictedFailure, RepeatedOperations, Size,
    SizeReport, SortLine, ThresholdLine,
};

/// Lays out `report`.
pub fn fit(report: &FitReport) -> Document {
    let mut document = Document::default();
    let files = report.recordings.iter().map(|one| format!("{} at {}", one.path, one.size));
    document.title(code(files.collect::<Vec<_>>().join(", ")));
    summary(&mut document, &report.summary());
    add_warnings(&mut document, &report.warnings);
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
        document.heading("Largest size with each second number");
        let header = ["second", "largest", "headroom", "next size", "with a setting"];
        let rows = device.by_second.iter().map(|of| largest_row(of, device));
        document.table(Table::new(&header, &[3, 4], rows));
        grid(document, device);
    }
    if !device.growth.is_empty() {
        document.heading(format!("Peak at {}, by line", device.growth_size()));
        let header = match device.growth_at_second {
            None => ["bytes", "share", "per unit", "growth", "line"],
            Some(_) => ["bytes", "share", "per unit of the first", "of the second", "line"],
        };
        let rest = (device.growth_rest_bytes > 0).then(|| rest_row(device));
        let rows = device.growth.iter().map(growth_row).chain(rest);
        document.table(Table::new(&header, &[3, 4], rows));
    }
    if !device.thresholds.is_empty() {
        document.heading(format!("Lines with a threshold before {}", device.growth_size()));
        let header = ["from", "buffer", "line"];
        document.table(Table::new(&header, &[2], device.thresholds.iter().map(threshold_row)));
    }
    if !device.sorts.is_empty() {
        document.heading("Lines that sort or scan growing data");
        let row = |line: &SortLine| -> Vec<Cell> { vec![size(line.bytes).into(), line.location.label().into()] };
        document.table(Table::new(&["storage", "line"], &[1], device.sorts.iter().map(row)));
    }
    document.heading("Evidence");
    document.field(
        "paired",
        format!(
            "{} of the memory at the peak of the largest recording, and {} of all bytes it requests, have the same stack in \
             another recording",
            percent(device.paired_ratio),
            percent(device.asked_paired_ratio)
        ),
    );
    if let Some(gpu) = device.launched_on.filter(|_| device.is_launched_elsewhere) {
        document.field(
            "reductions",
            format!(
                "take the buffers that they take on the recorded {gpu}; name another GPU with --capacity, such as h100"
            ),
        );
    }
    if let Some(repeated) = &device.repeated {
        document.field("repeated", describe_repeated(repeated));
    }
    document.fields(
        "checked",
        device.checked.iter().map(|check| {
            format!(
                "at {}, predicted from the others: {} allocated, {} recorded ({}); {} reserved, {} recorded ({})",
                check.size,
                size(check.predicted_allocated_bytes),
                size(check.recorded_allocated_bytes),
                describe_error(check.allocated_error_ratio),
                size(check.predicted_reserved_bytes),
                size(check.recorded_reserved_bytes),
                describe_error(check.reserved_error_ratio),
            )
        }),
    );
    if device.checked.is_empty() {
        let more = if device.growth_at_second.is_none() { "third" } else { "further" };
        document.field("checked", format!("no {more} recording; add one at another size to test the prediction"));
    }
    document.fields(
        "unpaired",
        device.unpaired.iter().map(|line| format!("{} by {}", size(line.bytes), line.location.label())),
    );
}

fn peaks(document: &mut Document, device: &FitDevice) {
    document.heading("Peak at each size");
    // Without a capacity the bars are relative to the largest peak.
    let greatest = device.sizes.iter().map(|of| of.peak_reserved_bytes).max().unwrap_or(0);
    let (full_bar, bar_header) = match device.capacity_bytes {
        Some(capacity) => (capacity, "of the device"),
        None => (greatest, "of the largest"),
    };
    let header = ["size", "peak allocated", "peak reserved", bar_header, "fits", ""];
    let rows = device.sizes.iter().map(|of| size_row(of, full_bar));
    document.table(Table::new(&header, &[3, 5], rows));
}

/// The largest size with one second number.
fn largest_row(of: &LargestAt, device: &FitDevice) -> Vec<Cell> {
    let fits = of.largest_safe.as_ref();
    let size_of = |largest: &Largest| match (largest.to_size(), largest.size) {
        (None, _) => "every size".to_owned(),
        (_, Some(0)) => "none".to_owned(),
        (Some(at), _) => at.to_string(),
    };
    let next = fits.and_then(Largest::to_size).and_then(|fits| device.failing_beyond(fits));
    vec![
        format!("x{}", of.second.unwrap_or(1)).into(),
        fits.map_or("unknown".to_owned(), size_of).into(),
        fits.and_then(|fits| fits.unreserved_bytes).map_or(String::new(), size).into(),
        next.map_or(String::new(), |(at, failed)| format!("{at} {}", describe_failure(failed))).into(),
        of.best.as_ref().map_or(String::new(), |best| format!("{} with {}", size_of(best), best.settings)).into(),
    ]
}

fn describe_repeated(repeated: &RepeatedOperations) -> String {
    let operations = counted(repeated.operations as u64, "operation");
    let times = match repeated.repetitions {
        1 => "once more".to_owned(),
        times => format!("{} times more", count(times)),
    };
    let units = match repeated.units {
        1 => "each unit of the size".to_owned(),
        units => format!("each {} units of the size", count(units)),
    };
    format!("{operations} {times} for {units}, in the same order as in the recordings")
}

/// A line whose kernel begins to take a buffer.
fn threshold_row(line: &ThresholdLine) -> Vec<Cell> {
    let certainty = if line.is_predicted { "" } else { ", if it is a reduction: not in the peaks" };
    vec![count(line.start).into(), size(line.bytes).into(), format!("{}{certainty}", line.location.label()).into()]
}

/// Peaks, with the first number by row and the second by column.
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

fn describe_error(error: f64) -> String {
    match error {
        0.0 => "equal".to_owned(),
        more if more > 0.0 => format!("{} too high", percent(more)),
        less => format!("{} too low", percent(-less)),
    }
}

/// `whole` bytes fill the bar.
fn size_row(of: &SizeReport, full_bar: u64) -> Vec<Cell> {
    vec![
        of.size.to_string().into(),
        size(of.peak_allocated_bytes).into(),
        size(of.peak_reserved_bytes).into(),
        Cell::Bar(ratio(of.peak_reserved_bytes, full_bar).min(1.0)),
        match of.fits {
            Some(true) => "yes".into(),
            Some(false) => alarm("no").into(),
            None => "".into(),
        },
        match &of.failed {
            Some(failed) => describe_failure(failed).into(),
            None if of.is_recorded => "recorded".into(),
            None => "".into(),
        },
    ]
}

fn describe_failure(failed: &PredictedFailure) -> String {
    let why = if failed.verdict == Verdict::Fragmentation { " (fragmentation)" } else { "" };
    format!("fails: {} requested{}{why}", size(failed.requested_bytes), failed.location.at_label())
}

fn rest_row(device: &FitDevice) -> Vec<Cell> {
    let shown: f64 = device.growth.iter().map(|line| line.share_ratio).sum();
    vec![
        size(device.growth_rest_bytes).into(),
        percent((1.0 - shown).max(0.0)).into(),
        "".into(),
        "".into(),
        "all other lines, with less growth".into(),
    ]
}

fn growth_row(line: &GrowingLine) -> Vec<Cell> {
    let [more, grows] = match (line.second_bytes_per_unit, line.second_law) {
        (Some(second), Some(law)) => [(line.bytes_per_unit, line.law), (second, law)].map(|(bytes, law)| {
            if bytes == 0 {
                describe_law(LawKind::Constant).to_owned()
            } else {
                format!("{}, {}", signed_size(bytes), describe_law(law))
            }
        }),
        _ => [signed_size(line.bytes_per_unit), describe_law(line.law).to_owned()],
    };
    vec![
        size(line.bytes).into(),
        percent(line.share_ratio).into(),
        more.into(),
        grows.into(),
        line.location.label().into(),
    ]
}

fn describe_law(law: LawKind) -> &'static str {
    match law {
        LawKind::Constant => "none",
        LawKind::Linear => "linear",
        LawKind::Quadratic => "quadratic",
        LawKind::Cubic => "cubic",
        LawKind::Quartic => "fourth power",
        LawKind::Line => "linear, with a fixed part",
        LawKind::Parabola => "quadratic, with other parts",
        LawKind::Near => "roughly linear",
    }
}

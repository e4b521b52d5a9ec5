//! The page of `oomscope fit`.

use std::ops::Range;

use super::notes::{add_notes, add_other_notes};
use crate::base::units::{count, counted, percent, ratio, size};
use crate::output::document::{Cell, Document, Judgement, Table, Text, amount, code, faint, signed_amount, strong};
use crate::output::wording::{command_line, location_label};
use crate::whatif::fit::{
    FitCertainty, FitDevice, FitReport, GrowingLine, LawKind, LeaveOneOutCheck, PredictedFailure, SizeReport,
};

/// Sizes and lines on the first screen, at most.
const MAX_SIZES: usize = 12;
const MAX_LINES: usize = 5;

/// Lays out `report`: the device that limits the size, and below it everything about each device.
pub fn fit(report: &FitReport) -> Document {
    let mut document = Document::default();
    let Some(device) = report.limiting_device() else { return document }; // a report has a device
    let recorded: Vec<String> = report.recordings.iter().map(|recording| count(recording.size)).collect();
    document.headline(headline(report, device), faint(format!("recorded at {}", recorded.join(", "))));
    add_notes(&mut document, &report.warnings);
    let shown = sizes_around_answer(device);
    let left_out = device.sizes.len() - shown.len();
    let note = (left_out > 0).then(|| faint(format!("{}: --full", counted(left_out as u64, "other size"))));
    document.table(peaks(device, device.sizes.get(shown).unwrap_or_default()).note(note));
    growth(&mut document, device, MAX_LINES);
    let summary = report.summary();
    document.fields("do", summary.action);
    document.fields("copy", summary.copy.map(code));
    let next = report.recordings.last().and_then(|last| command_line("whatif --program", &last.path));
    document.fields("next", next.map(code));
    let mut sections = Document::default();
    for of in &report.devices {
        if report.devices.len() > 1 {
            sections.heading(format!("GPU {}", of.device));
        }
        let is_shown = of.device == device.device;
        if !is_shown || left_out > 0 {
            sections.table(peaks(of, &of.sizes));
        }
        if !is_shown || of.growth.len() > MAX_LINES {
            growth(&mut sections, of, of.growth.len());
        }
        details(&mut sections, of);
    }
    sections.fields(
        "recording",
        report.recordings.iter().map(|one| code(&*one.path).and(format!(" at {}", count(one.size)))),
    );
    sections.field("rules", format!("of PyTorch {}", report.torch_version));
    add_other_notes(&mut sections, &report.warnings);
    document.add_sections(sections);
    document
}

/// `largest size on 80 GiB: 95 (checked), limited by model.py:31 forward (37 MiB a unit)`
fn headline(report: &FitReport, device: &FitDevice) -> Text {
    let answer = strong(report.summary().answer);
    let Some(line) = device.growth.first().filter(|line| line.bytes_per_unit > 0) else { return answer };
    let rate = format!(" ({} a unit)", size(line.bytes_per_unit.unsigned_abs()));
    let verb = if device.largest_safe.is_some() { ", limited by " } else { "; grows most at " };
    answer.and(verb).and(location_label(&line.location)).and(rate)
}

/// The sizes on the first screen: those next to the largest that fits.
fn sizes_around_answer(device: &FitDevice) -> Range<usize> {
    let answer = device.largest_safe.as_ref().and_then(|largest| largest.size);
    let at = device.sizes.iter().position(|of| Some(of.size) == answer).unwrap_or(device.sizes.len());
    let last_start = device.sizes.len().saturating_sub(MAX_SIZES);
    let start = at.saturating_sub(MAX_SIZES / 2).min(last_start);
    start..device.sizes.len().min(start + MAX_SIZES)
}

/// The peaks at `sizes`.
fn peaks(device: &FitDevice, sizes: &[SizeReport]) -> Table {
    let row = |of: &SizeReport| -> Vec<Cell> {
        let name = Text::from(count(of.size));
        let is_guess = !of.is_recorded && device.certainty_at(Some(of.size)) == FitCertainty::Estimate;
        let name = match of.fits {
            Some(true) if is_guess => Cell::Marked(Judgement::Perhaps, name),
            Some(true) => Cell::Marked(Judgement::Good, name),
            Some(false) => Cell::Marked(Judgement::Bad, name),
            None => name.into(),
        };
        let result = match &of.failed {
            Some(failed) => describe_failure(failed),
            None if of.is_recorded => faint("recorded"),
            None => Text::default(),
        };
        let share = device.capacity_bytes.map(|capacity| percent(ratio(of.peak_reserved_bytes, capacity)));
        let peaks = [of.peak_allocated_bytes, of.peak_reserved_bytes].map(size);
        let cells = [name, result.into()].into_iter().chain(peaks.map(Cell::from));
        cells.chain(share.map(Cell::from)).collect()
    };
    let header = ["size", "", "peak allocated", "peak reserved", "of device"];
    let columns = if device.capacity_bytes.is_some() { header.len() } else { header.len() - 1 };
    let table = Table::new(&header[..columns], &[0, 1], sizes.iter().map(row)).wide();
    if columns == header.len() { table.optional_columns(&[columns - 1]) } else { table }
}

fn describe_failure(failed: &PredictedFailure) -> Text {
    Text::from(format!("{}: {} at ", failed.verdict, size(failed.requested_bytes)))
        .and(location_label(&failed.location))
}

/// The `rows` lines that grow most, at the peak of the largest size that fits.
fn growth(document: &mut Document, device: &FitDevice, rows: usize) {
    let (shown, others) = device.growth.split_at(rows.min(device.growth.len()));
    if shown.is_empty() {
        return;
    }
    let others = others.iter().fold(device.growth_rest_bytes, |sum, line| sum.saturating_add(line.bytes));
    let share: f64 = shown.iter().map(|line| line.share_ratio).sum();
    let rest = (others > 0).then(|| {
        let rest = [size(others), percent((1.0 - share).max(0.0)), String::new(), String::new()];
        [faint("everything else").into()].into_iter().chain(rest.map(Cell::from)).collect()
    });
    let header = ["bytes", "share", "a unit", "growth"].map(str::to_owned);
    let header: Vec<String> = [format!("held at {}", count(device.growth_at))].into_iter().chain(header).collect();
    document.table(Table::new(&header, &[0, 4], shown.iter().map(growth_row).chain(rest)).wide());
}

fn growth_row(line: &GrowingLine) -> Vec<Cell> {
    vec![
        location_label(&line.location).into(),
        amount(line.bytes).into(),
        percent(line.share_ratio).into(),
        signed_amount(line.bytes_per_unit).into(),
        describe_law(line.law).into(),
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

/// The evidence for the prediction.
fn details(document: &mut Document, device: &FitDevice) {
    document.heading("Evidence");
    let paired = [device.paired_ratio, device.asked_paired_ratio].map(percent);
    let [at_peak, all] = paired;
    document.field("paired", format!("{at_peak} of the memory at the peak and {all} of all requested bytes, by stack"));
    if let Some(gpu) = device.launched_on.filter(|_| device.is_launched_elsewhere) {
        document
            .field("reductions", format!("take buffers as on the recorded {gpu}: name another GPU with --capacity"));
    }
    if device.checked.is_empty() {
        document.field("checked", "no third recording; add one at another size to test the prediction");
    } else {
        let row = |check: &LeaveOneOutCheck| -> Vec<Cell> {
            let errors = [check.allocated_error_ratio, check.reserved_error_ratio].map(describe_error);
            let [allocated, reserved] = errors;
            vec![
                count(check.size).into(),
                amount(check.predicted_allocated_bytes).into(),
                allocated.into(),
                amount(check.predicted_reserved_bytes).into(),
                reserved.into(),
            ]
        };
        let header = ["predicted from the others", "allocated", "", "reserved", ""];
        document.table(Table::new(&header, &[0, 2, 4], device.checked.iter().map(row)));
    }
    document.fields(
        "unpaired",
        device.unpaired.iter().map(|line| location_label(&line.location).and(format!(": {}", size(line.bytes)))),
    );
}

fn describe_error(error: f64) -> String {
    match error {
        0.0 => "as recorded".to_owned(),
        more if more > 0.0 => format!("{} too high", percent(more)),
        less => format!("{} too low", percent(-less)),
    }
}

#[cfg(test)]
mod tests {
    use super::describe_error;

    #[test]
    fn a_prediction_above_what_was_recorded_is_too_high() {
        let described = [0.0, 0.25, -0.25].map(describe_error);
        assert_eq!(described, ["as recorded", "25% too high", "25% too low"]);
    }
}

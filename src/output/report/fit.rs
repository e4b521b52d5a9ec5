//! The page of `oomscope fit`, and its summary.

use std::cmp::Reverse;
use std::ops::Range;

use itertools::Itertools as _;

use super::notes::{add_action, add_notes, with_other_notes};
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted, percent, ratio, size};
use crate::output::document::{
    Cell, Document, Judgement, Table, TableOf, Text, amount, code, faint, signed_amount, strong,
};
use crate::output::wording::{Summary, command_line, location_label};
use crate::whatif::Sureness;
use crate::whatif::fit::{
    FitDevice, FitRefusal, FitReport, GrowingLine, Largest, LawKind, RecordingReport, SizeReport,
};

/// Sizes and lines on the first screen, at most.
const MAX_SIZES: usize = 12;
const MAX_LINES: usize = 5;

/// Lays out `report`: the device that limits the size, and below it everything about each device.
pub fn fit(report: &FitReport) -> Document {
    let Some(device) = report.limiting_device() else { return Document::default() }; // a report has a device
    let recorded = report.recordings.iter().map(|recording| count(recording.size)).format(", ");
    let mut document = Document::with_headline(headline(report, device), faint(format!("recorded at {recorded}")));
    add_notes(&mut document, &report.warnings);
    let shown = sizes_around_answer(device);
    let left_out = device.sizes.len() - shown.len();
    let note = (left_out > 0).then(|| faint(format!("{}: --full", counted(left_out as u64, "other size"))));
    document.table(peaks(device, device.sizes.get(shown).unwrap_or_default()).note(note));
    growth(&mut document, device, MAX_LINES);
    add_action(&mut document, &report.summary());
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
    sections.fields("recording", report.recordings.iter().map(recording_label));
    sections.field("rules", format!("of PyTorch {}", report.torch_version));
    document.with_sections(with_other_notes(sections, &report.warnings))
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
fn peaks<'s>(device: &FitDevice, sizes: &'s [SizeReport]) -> TableOf<&'s SizeReport> {
    let capacity = device.capacity_bytes;
    Table::from_rows(sizes)
        .text("size", |of| {
            let is_guess = !of.is_recorded && device.certainty_at(Some(of.size)) == Sureness::Estimate;
            let mark = match of.fits {
                Some(true) if is_guess => Judgement::Perhaps,
                Some(true) => Judgement::Good,
                Some(false) => Judgement::Bad,
                None => return Cell::from(count(of.size)),
            };
            Cell::marked(mark, count(of.size))
        })
        .text("", |of| match &of.failed {
            Some(failed) => Text::from(format!("{}: {} at ", failed.verdict, size(failed.requested_bytes)))
                .and(location_label(&failed.location)),
            None if of.is_recorded => faint("recorded"),
            None => Text::default(),
        })
        .number("peak allocated", |of| size(of.peak_allocated_bytes))
        .number("peak reserved", |of| size(of.peak_reserved_bytes))
        .number("of device", |of| percent(ratio(of.peak_reserved_bytes, capacity.unwrap_or_default())))
        .optional()
        .only_if(capacity.is_some())
        .wide()
}

/// The `rows` lines that grow most, at the peak of the largest size that fits.
fn growth(document: &mut Document, device: &FitDevice, rows: usize) {
    let (shown, others) = device.growth.split_at(rows.min(device.growth.len()));
    if shown.is_empty() {
        return;
    }
    let others = others.iter().fold(device.growth_rest_bytes, |sum, line| sum.saturating_add(line.bytes));
    let share: f64 = shown.iter().map(|line| line.share_ratio).sum();
    let rest = (others > 0).then_some((None, others, (1.0 - share).max(0.0)));
    let rows = shown.iter().map(|line| (Some(line), line.bytes, line.share_ratio)).chain(rest);
    let table = Table::from_rows(rows)
        .text(format!("held at {}", count(device.growth_at)), |(line, ..)| match line {
            Some(line) => location_label(&line.location),
            None => faint("everything else"),
        })
        .number("bytes", |(line, bytes, _)| if line.is_some() { amount(*bytes) } else { size(*bytes).into() })
        .number("share", |(.., share)| percent(*share))
        .number("a unit", |(line, ..)| line.map_or_else(Text::default, |line| signed_amount(line.bytes_per_unit)))
        .text("growth", |(line, ..)| line.map_or("", |line| describe_law(line.law)));
    document.table(table.wide());
}

fn describe_law(law: LawKind) -> &'static str {
    match law {
        LawKind::Constant => "none",
        LawKind::Linear => "linear",
        LawKind::Quadratic => "quadratic",
        LawKind::Cubic => "cubic",
        LawKind::Quartic => "fourth power",
        LawKind::Line => "linear, with a fixed part",
        LawKind::Near => "roughly linear",
    }
}

/// The evidence for the prediction.
fn details(document: &mut Document, device: &FitDevice) {
    document.heading("Evidence");
    let [at_peak, all] = [device.paired_ratio, device.asked_paired_ratio].map(percent);
    document.field("paired", format!("{at_peak} of the memory at the peak and {all} of all requested bytes, by stack"));
    let recorded_on = device.launched_on.filter(|_| device.is_launched_elsewhere);
    let buffers =
        recorded_on.map(|gpu| format!("take buffers as on the recorded {gpu}: name another GPU with --capacity"));
    document.fields("reductions", buffers);
    if device.checked.is_empty() {
        document.field("checked", "no third recording; add one at another size to test the prediction");
    } else {
        let table = Table::from_rows(&device.checked)
            .text("predicted from the others", |check| count(check.size))
            .number("allocated", |check| amount(check.predicted_allocated_bytes))
            .text("", |check| describe_error(check.allocated_error_ratio))
            .number("reserved", |check| amount(check.predicted_reserved_bytes))
            .text("", |check| describe_error(check.reserved_error_ratio));
        document.table(table);
    }
    let unpaired = device.unpaired.iter();
    document
        .fields("unpaired", unpaired.map(|line| location_label(&line.location).and(format!(": {}", size(line.bytes)))));
}

/// `a.pickle at 16`
pub(super) fn recording_label(recording: &RecordingReport) -> Text {
    code(&*recording.path).and(format!(" at {}", count(recording.size)))
}

fn describe_error(error: f64) -> String {
    match error {
        0.0 => "as recorded".to_owned(),
        more if more > 0.0 => format!("{} too high", percent(more)),
        less => format!("{} too low", percent(-less)),
    }
}

impl FitRefusal {
    /// Why nothing is predicted.
    pub fn summary(&self) -> Summary {
        Summary::from_answer(&*self.sentence)
    }
}

impl FitReport {
    /// The device on which least fits.
    pub(crate) fn limiting_device(&self) -> Option<&FitDevice> {
        self.devices.iter().min_by_key(|device| {
            let size = device.largest_safe.as_ref().and_then(|largest| largest.size).unwrap_or(u64::MAX);
            (size, Reverse(device.sizes.iter().map(|at| at.peak_reserved_bytes).max()))
        })
    }

    /// Summarizes the device on which least fits.
    pub fn summary(&self) -> Summary {
        let Some(device) = self.limiting_device() else { return Summary::default() }; // a report has a device
        let (action, copy) = match (&device.best, device.capacity_bytes, nearer_size(device)) {
            (_, None, _) => {
                (Some("give --capacity, such as 80GiB, to see the largest size that fits".to_owned()), None)
            }
            _ if device.varies() => {
                (Some("pad the data of every step to one length to know the largest size".to_owned()), None)
            }
            (_, _, Some(nearer)) => {
                (Some(format!("record at {} too: the answer is far from the recordings", count(nearer))), None)
            }
            (Some(best), ..) => {
                let (size, option) = (best.size, &best.settings);
                let action = size.map(|at| {
                    format!("size {} {} with {option}{}", count(at), describe_fit(best), describe_headroom(best))
                });
                (action, Some(shell_assignment(option, self.settings_string.as_deref())))
            }
            _ if self.multiple > 1 && device.largest_safe.as_ref().is_some_and(|none| none.size == Some(0)) => {
                (Some("leave out --multiple-of to see what fits".to_owned()), None)
            }
            _ => (None, None),
        };
        let who = device.growth.first().map(|line| describe_growth(line, device));
        Summary { answer: describe_answer(device, self), who, variable: None, action, copy }
    }
}

/// The size to record if the answer is an estimate because the recordings are far from it: half of it.
fn nearer_size(device: &FitDevice) -> Option<u64> {
    let answer = device.largest_safe.as_ref().filter(|answer| answer.certainty == Sureness::Estimate)?;
    answer.size.map(|size| size / 2).filter(|nearer| *nearer > device.largest_recorded)
}

/// `largest size on 80 GiB: 95 (checked)`
fn describe_answer(device: &FitDevice, report: &FitReport) -> String {
    let Some(capacity) = device.capacity_bytes else {
        return device.sizes.last().map_or_else(
            || "the largest size is unknown without a capacity".to_owned(),
            |at| {
                let [allocated, reserved] = [at.peak_allocated_bytes, at.peak_reserved_bytes].map(size);
                let estimate = if device.is_doubtful() { " (estimate)" } else { "" };
                let at = count(at.size);
                format!("at size {at} the peak is {allocated} allocated, {reserved} reserved{estimate}")
            },
        );
    };
    let Some(largest) = &device.largest_safe else {
        return "the largest size cannot be predicted: a larger size makes more requests, and how many more is unknown"
            .to_owned();
    };
    let of = if report.devices.len() > 1 { format!(" of GPU {}", device.device) } else { String::new() };
    let on = format!("on {}{of}", size(capacity));
    match largest.size {
        None => {
            let estimate = if largest.certainty == Sureness::Estimate { " (estimate)" } else { "" };
            format!("every size fits {on}{estimate}: the peak does not grow")
        }
        Some(0) => {
            let what =
                if report.multiple > 1 { format!("multiple of {}", count(report.multiple)) } else { "size".into() };
            let settings = if device.best.is_some() { " under the recorded settings" } else { "" };
            format!("no {what} fits {on}{settings}")
        }
        Some(at) => {
            let should = largest.certainty == Sureness::Should;
            let by_data = device.by_data.map_or_else(String::new, describe_range_by_data);
            let word = if should { "should fit" } else { largest.certainty.word() };
            format!("largest size {on}: {} ({word}){by_data}", count(at))
        }
    }
}

/// The answers of the recordings, if data decides about shapes.
pub(super) fn describe_range_by_data([minimum, maximum]: [u64; 2]) -> String {
    format!("; its data decide about shapes: with others {} to {}", count(minimum), count(maximum))
}

fn describe_fit(largest: &Largest) -> &'static str {
    match largest.certainty {
        Sureness::Confirmed | Sureness::Checked => "fits",
        Sureness::Should => "should fit",
        Sureness::Estimate => "may fit",
    }
}

/// Describes the headroom: with little of it, a prediction that is slightly too low matters.
fn describe_headroom(largest: &Largest) -> String {
    match largest.headroom() {
        None => String::new(),
        Some(0) => ", no headroom".to_owned(),
        Some(bytes) => format!(", {} headroom", size(bytes)),
    }
}

/// Describes the line that grows most.
fn describe_growth(line: &GrowingLine, device: &FitDevice) -> String {
    let (place, at) = (line.location.label(), count(device.growth_at));
    let [bytes, more] = [line.bytes, line.bytes_per_unit.unsigned_abs()].map(size);
    format!("{place}: {bytes} at size {at}, {more} more for each unit")
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

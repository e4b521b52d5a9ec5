//! The page of `oomscope timeline`, and its summary: memory over time and its peaks; below it, charts of all other series, and events.

use super::notes::{add_copy, add_notes, with_other_notes};
use super::phrases::and_others;
use crate::analysis::timeline::{DeviceTimeline, TimelineReport};
use crate::base::units::{count, counted, duration, size};
use crate::base::warning::Code;
use crate::output::document::{Band, Chart, Document, Failures, Table, alarm, amount, faint, strong};
use crate::output::wording::{Summary, command_line};
use crate::stacks::phases::Phase;
use crate::study::figures::Figure;

/// Figures whose peak is listed; of several devices, the first two.
const PEAKS: [(&str, Figure); 5] = [
    ("allocated", Figure::Allocated),
    ("reserved", Figure::Reserved),
    ("stranded", Figure::Stranded),
    ("pending", Figure::Pending),
    ("private pools", Figure::PrivateReserved),
];
/// Lays out `report`: the device that matters most, and the others below.
pub fn timeline(report: &TimelineReport) -> Document {
    let summary = report.summary();
    let Some(worst) = report.worst() else { return Document::with_headline(strong(&*summary.answer), "") };
    let answer = if worst.marks.oom.count > 0 { alarm(&*summary.answer) } else { strong(&*summary.answer) };
    let mut document = Document::with_headline(answer, faint(range(worst)));
    add_notes(&mut document, &report.warnings);
    document.chart(chart(worst));
    document.table(peaks_table(&report.devices));
    add_copy(&mut document, summary.copy.as_deref());
    let mut sections = Document::default();
    for device in report.devices.iter().filter(|device| device.device != worst.device) {
        sections.heading(format!("GPU {} over time: {}", device.device, range(device)));
        sections.chart(chart(device));
    }
    document.with_sections(with_other_notes(sections, &report.warnings))
}

/// The entries of `device` that are shown.
fn range(device: &DeviceTimeline) -> String {
    // Before PyTorch 2.2 entries have no times.
    let time = device.duration_us.map_or_else(String::new, |us| format!(", {}", duration(us)));
    let [first, end] = [device.first_event, device.first_event + device.events].map(count);
    let part = if device.events < device.trace_events { format!("{first} to {end} of ") } else { String::new() };
    format!("{part}{}{time}", counted(device.trace_events, "entry"))
}

/// Devices in the table of peaks, at most.
const MAX_DEVICES: usize = 4;

/// The peaks of each device, and when they were reached.
fn peaks_table(devices: &[DeviceTimeline]) -> impl Into<Table> {
    let are_several = devices.len() > 1;
    let rows = devices.iter().take(MAX_DEVICES).flat_map(|device| {
        let figures = PEAKS.iter().take(if are_several { 2 } else { PEAKS.len() });
        let series = figures.filter_map(|(name, figure)| Some((*name, device.series.size(*figure)?)));
        let gpu = if are_several { format!("GPU {} ", device.device) } else { String::new() };
        let series = series.filter(|(_, series)| series.highest > 0);
        series.map(move |(name, series)| (device, format!("{gpu}{name}"), series))
    });
    let note = and_others(devices.len(), MAX_DEVICES, "other GPU", ": --full").map(faint);
    Table::from_rows(rows)
        .text("peak", |(_, name, _)| name.clone())
        .number("bytes", |(.., series)| amount(series.highest))
        .number("at entry", |(.., series)| series.highest_event.map_or_else(|| "before".to_owned(), count))
        .number("after", |(device, _, series)| {
            let times = series.highest_time_us.zip(device.start_us);
            times.map_or_else(String::new, |(time, start)| duration(time.saturating_sub(start)))
        })
        .wide()
        .note(note)
}

/// Allocated, reserved and stranded memory, steps and phases, and failed requests.
fn chart(device: &DeviceTimeline) -> Chart {
    let phases = device.activity.phases.iter().map(|run| {
        let name = if run.value == Phase::Other { "" } else { run.value.word() };
        Band { range: [run.start, run.end], name: name.to_owned() }
    });
    let starts: Vec<u64> = device.buckets.first_event.iter().map(|event| event - device.first_event).collect();
    let ends = starts.iter().skip(1).copied().chain([device.events]);
    let failed = &device.marks.oom;
    let buckets = starts.iter().copied().zip(ends).zip(&failed.in_bucket).filter(|(_, failed)| **failed > 0);
    let ranges = buckets.map(|((start, end), _)| [start, end]).collect();
    let labels = failed.largest.iter().map(|mark| (mark.event - device.first_event, size(mark.bytes))).collect();
    let failed = Failures { ranges, labels, note: counted(failed.count, "time") };
    // Before PyTorch 2.2 entries have no times, and the chart no time axis.
    let begin = device.start_us.unwrap_or(0);
    let times: Option<Vec<u64>> = device.buckets.time_us.iter().copied().collect();
    let [allocated, reserved, stranded] = [Figure::Allocated, Figure::Reserved, Figure::Stranded]
        .map(|figure| device.series.size(figure).map_or_else(Vec::new, |series| series.max.clone()));
    let steps = device.activity.steps.iter();
    Chart {
        entries: device.events,
        first: device.first_event,
        starts,
        times_us: times.into_iter().flatten().map(|time| time.saturating_sub(begin)).collect(),
        allocated,
        reserved,
        levels: vec![("stranded", stranded)],
        bands: vec![("phase", phases.collect())],
        steps: steps.map(|step| Band { range: [step.start, step.end], name: step.value.to_string() }).collect(),
        failed,
    }
}

impl TimelineReport {
    /// Summarizes the device with most failed requests; on a tie, the one with most reserved bytes.
    pub fn summary(&self) -> Summary {
        let Some(device) = self.worst() else { return Summary::from_answer("nothing was recorded") };
        let is_lost = self.warnings.iter().any(|warning| warning.code == Code::HistoryLost);
        let is_whole = device.events == device.trace_events && !is_lost;
        let part = if is_whole { "" } else { " in this part of the recording" };
        let id = device.device;
        let failed = &device.marks.oom;
        let (answer, action, position) = match failed.largest.last().filter(|_| failed.count > 0) {
            None => {
                let peak = device.series.size(Figure::Reserved).map_or(0, |series| series.highest);
                let at_least = if is_lost { "at least " } else { "" };
                let answer = format!("no request failed{part}: up to {at_least}{} reserved on GPU {id}", size(peak));
                (answer, "see who held the memory at its peak", "peak")
            }
            Some(last) => {
                let (requests, at) = (counted(failed.count, "request"), count(last.event));
                let last = if failed.count == 1 { "" } else { "the last " };
                let answer = format!("{requests} failed{part} on GPU {id}, {last}at entry {at}");
                (answer, "see who held the memory at the last failure", "failure")
            }
        };
        let copy = command_line(&format!("analyze --at {position}"), &self.path);
        Summary { action: copy.is_some().then(|| action.to_owned()), copy, ..Summary::from_answer(answer) }
    }

    /// The device with most failed requests; on a tie, the one with most reserved bytes.
    pub(crate) fn worst(&self) -> Option<&DeviceTimeline> {
        // `max_by_key` takes the last of equals; the first one is wanted.
        self.devices.iter().rev().max_by_key(|device| {
            (device.marks.oom.count, device.series.size(Figure::Reserved).map_or(0, |series| series.highest))
        })
    }
}

//! The page of `oomscope timeline`: memory over time and its peaks; below it, charts of all other series, and events.

use super::notes::{add_notes, add_other_notes};
use super::phrases::entry_range;
use super::summary::add_copy;
use crate::analysis::timeline::{DeviceTimeline, MarkSeries, Series, TimelineReport};
use crate::base::units::{count, counted, duration, size};
use crate::output::document::{Band, Chart, ChartRow, Document, RowNote, Shape, Table, alarm, amount, faint, strong};
use crate::stacks::phases::Phase;
use crate::study::figures::Figure;
use crate::study::{self, Activity};

/// Rows of the chart of free memory.
const FREE_MEMORY: [(&str, Figure); 5] = [
    ("releasable", Figure::Releasable),
    ("stranded", Figure::Stranded),
    ("private", Figure::PrivateFree),
    ("pending", Figure::Pending),
    ("largest", Figure::LargestFreeBlock),
];
/// Rows of the chart of fragmentation.
const RATIOS: [(&str, Figure); 3] =
    [("gap", Figure::GapRatio), ("stranded", Figure::Fragmentation), ("external", Figure::ExternalRatio)];
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
    let mut document = Document::default();
    let summary = report.summary();
    let Some(worst) = report.worst() else {
        document.headline(strong(&*summary.answer), "");
        return document;
    };
    let answer = if worst.marks.oom.count > 0 { alarm(&*summary.answer) } else { strong(&*summary.answer) };
    document.headline(answer, faint(range(worst)));
    add_notes(&mut document, &report.warnings);
    TimelinePage { document: &mut document, device: worst }.memory();
    document.table(peaks_table(&report.devices));
    add_copy(&mut document, summary.copy.as_deref());
    let mut sections = Document::default();
    add_devices(&mut sections, report, worst.device);
    add_other_notes(&mut sections, &report.warnings);
    document.add_sections(sections);
    document
}

/// All charts of each device, without that of memory for the device that is `shown` already.
fn add_devices(document: &mut Document, report: &TimelineReport, shown: u64) {
    for device in &report.devices {
        let mut page = TimelinePage { document, device };
        page.document.heading(format!("GPU {} over time: {}", device.device, range(device)));
        if device.device != shown {
            page.memory();
        }
        page.add_others();
    }
}

/// The entries of `device` that are shown.
fn range(device: &DeviceTimeline) -> String {
    entry_range(device.first_event, device.events, device.trace_events, device.duration_us)
}

/// Devices in the table of peaks, at most.
const MAX_DEVICES: usize = 4;

/// The peaks of each device, and when they were reached.
fn peaks_table(devices: &[DeviceTimeline]) -> impl Into<Table> {
    let are_several = devices.len() > 1;
    let on = |device: &DeviceTimeline| {
        if are_several { format!("GPU {} ", device.device) } else { String::new() }
    };
    let after = |device: &DeviceTimeline, series: &Series<u64>| {
        let after = series.highest_time_us.zip(device.start_us).map(|(time, start)| time.saturating_sub(start));
        after.map_or_else(String::new, duration)
    };
    let rows = devices.iter().take(MAX_DEVICES).flat_map(|device| {
        let figures = PEAKS.iter().take(if are_several { 2 } else { PEAKS.len() });
        let series = figures.filter_map(|(name, figure)| Some((*name, device.series.size(*figure)?)));
        series.filter(|(_, series)| series.highest > 0).map(move |(name, series)| (device, name, series))
    });
    let others = devices.len().saturating_sub(MAX_DEVICES) as u64;
    let note = (others > 0).then(|| faint(format!("and {}: --full", counted(others, "other GPU"))));
    Table::from_rows(rows)
        .text("peak", |(device, name, _)| format!("{}{name}", on(device)))
        .number("bytes", |(.., series)| amount(series.highest))
        .number("at entry", |(.., series)| series.highest_event.map_or_else(|| "before".to_owned(), count))
        .number("after", |(device, _, series)| after(device, series))
        .wide()
        .note(note)
}

fn row(name: impl Into<String>, shape: Shape, note: RowNote) -> ChartRow {
    ChartRow { name: name.into(), shape, note }
}

/// The rows of steps and phases, below the axis.
fn activity_rows(course: &Activity) -> Vec<ChartRow> {
    let mut rows = Vec::new();
    let mut add_bands = |name: &str, add_bands: Vec<Band>, is_numbered| {
        if add_bands.iter().any(|band| !band.name.is_empty()) {
            rows.push(row(name, Shape::Bands { bands: add_bands, is_numbered }, RowNote::None));
        }
    };
    let steps = course.steps.iter().map(|s| band(s, s.value.to_string()));
    add_bands("step", steps.collect(), true);
    let phases = course.phases.iter().map(|run| {
        band(
            run,
            match run.value {
                Phase::Other => String::new(),
                phase => phase.word().to_owned(),
            },
        )
    });
    add_bands("phase", phases.collect(), false);
    rows
}

fn band<T>(of: &study::EntryRange<T>, name: String) -> Band {
    Band { range: [of.start, of.end], name }
}

/// The section of one device.
struct TimelinePage<'a> {
    document: &'a mut Document,
    device: &'a DeviceTimeline,
}

impl TimelinePage<'_> {
    /// Everything below the first screen.
    fn add_others(&mut self) {
        self.private_pools_and_marks();
        self.kinds();
        self.ratios();
    }

    /// First entry of bucket `n`, relative to the first entry shown; the end of the trace for the bucket after the
    /// last.
    fn start(&self, n: u64) -> u64 {
        let start = usize::try_from(n).ok().and_then(|n| self.device.buckets.first_event.get(n));
        start.map_or(self.device.events, |event| event - self.device.first_event)
    }

    /// The entries of bucket `n`, half-open.
    fn bucket(&self, n: u64) -> [u64; 2] {
        [self.start(n), self.start(n + 1)]
    }

    /// Appends a chart with `rows`.
    fn chart(&mut self, rows: Vec<ChartRow>) {
        let starts = (0..self.device.buckets.first_event.len() as u64).map(|n| self.start(n));
        let starts = starts.collect();
        // Before PyTorch 2.2 entries have no times, and the chart no time axis.
        let begin = self.device.start_us.unwrap_or(0);
        let times: Option<Vec<u64>> = self.device.buckets.time_us.iter().copied().collect();
        let times_us = times.into_iter().flatten().map(|time| time.saturating_sub(begin)).collect();
        let (entries, first) = (self.device.events, self.device.first_event);
        self.document.chart(Chart { entries, first, starts, times_us, rows });
    }

    /// Allocated and reserved memory, steps and phases, and failed requests.
    fn memory(&mut self) {
        let device = self.device;
        let [reserved, allocated] = [Figure::Reserved, Figure::Allocated]
            .map(|figure| device.series.size(figure).map_or_else(Vec::new, |series| series.max.clone()));
        let names = ["reserved, not allocated", "allocated"];
        let area = Shape::Area { back: reserved, front: allocated, names };
        let mut rows = vec![row("", area, RowNote::None), row("", Shape::Axis, RowNote::Text(String::new()))];
        rows.extend(activity_rows(&device.activity));
        let failed = &device.marks.oom;
        if failed.count > 0 {
            rows.push(self.marks("failed", failed));
            let first = device.first_event;
            let labels = failed.largest.iter().map(|mark| (mark.event - first, size(mark.bytes)));
            rows.push(row("", Shape::Labels(labels.collect()), RowNote::None));
        }
        self.chart(rows);
    }

    /// Private pools, releases of cached memory and snapshots.
    fn private_pools_and_marks(&mut self) {
        let device = self.device;
        let private = device.series.size(Figure::PrivateReserved).filter(|series| series.highest > 0);
        let private = private.map(|series| {
            let note = RowNote::Text(format!("to {}", size(series.highest)));
            row("in private", amounts(series), note)
        });
        let marks = &device.marks;
        let kinds = [("reclaim", &marks.reclaim), ("empty_cache", &marks.empty_cache), ("snapshot", &marks.snapshot)];
        let kinds = kinds.into_iter().filter(|(_, kind)| kind.count > 0).map(|(name, kind)| self.marks(name, kind));
        let rows: Vec<ChartRow> = private.into_iter().chain(kinds).collect();
        if !rows.is_empty() {
            self.chart(rows);
        }
    }

    fn marks(&self, name: &str, kind: &MarkSeries) -> ChartRow {
        let buckets = kind.in_bucket.iter().zip(0..).filter(|(n, _)| **n > 0);
        let spans = buckets.map(|(_, n)| self.bucket(n)).collect();
        row(name, Shape::Marks(spans), RowNote::Text(counted(kind.count, "time")))
    }

    fn kinds(&mut self) {
        self.document.heading("Free memory, maximum of each column; each line has its own scale");
        let highest = RowNote::Text("highest".to_owned());
        let mut rows = vec![row("", Shape::Empty, highest)];
        for (name, figure) in FREE_MEMORY {
            let series = self.device.series.size(figure);
            if let Some(series) = series.filter(|series| series.highest > 0) {
                rows.push(row(name, amounts(series), RowNote::Text(size(series.highest))));
            }
        }
        self.chart(rows);
    }

    fn ratios(&mut self) {
        self.document.heading("Fragmentation, 0% to 100%, minimum of each column");
        let series = &self.device.series;
        let rows = RATIOS
            .iter()
            .filter_map(|(name, figure)| Some(row(*name, shares(series.ratio(*figure)?), RowNote::MinMax)));
        self.chart(rows.collect());
    }
}

fn amounts(series: &Series<u64>) -> Shape {
    Shape::Amounts { values: series.max.clone(), max: series.highest }
}

fn shares(series: &Series<f64>) -> Shape {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to a million")]
    let millionths = series.min.iter().map(|ratio| (ratio * 1e6).round() as u64).collect();
    Shape::Shares(millionths)
}

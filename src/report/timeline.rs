//! The page of `oomscope timeline`: charts over one axis, then the worst moments in words.

use super::chart::{Axis, LABELS, area, pointers, strip};
use super::sheet::Page;
use super::style::Style;
use super::words::extent;
use crate::figures::Figure;
use crate::timeline::{DeviceTimeline, Series, TimelineReport};
use crate::units::{count, counted, duration, percent, plain, size};

/// Columns to the right of a strip, for its highest value.
const NOTES: usize = 13;
/// Ranges that are drawn.
const RANGES: usize = 6;
/// What a reclaim is.
const RECLAIM: &str = "had cached memory given back to the device first, which is slow (a retry after \
    the device refused, or garbage collection)";
/// Marks of one kind that are told one by one.
const TOLD: usize = 3;

/// Lines of free memory.
const KINDS: [(&str, Figure); 5] = [
    ("releasable", Figure::Releasable),
    ("stranded", Figure::Stranded),
    ("private", Figure::PrivateFree),
    ("pending", Figure::Pending),
    ("largest", Figure::LargestFreeBlock),
];
/// Lines of fragmentation.
const RATIOS: [(&str, Figure); 3] = [
    ("gap", Figure::GapRatio),
    ("stranded", Figure::StrandedRatio),
    ("external", Figure::ExternalRatio),
];
/// Figures whose highest value is told.
const HIGHEST: [(&str, Figure); 5] = [
    ("reserved", Figure::Reserved),
    ("allocated", Figure::Allocated),
    ("stranded", Figure::Stranded),
    ("pending", Figure::Pending),
    ("private pools", Figure::PrivateReserved),
];

/// What the line called `name` shows.
fn said(name: &str, figure: Figure) -> String {
    let mut meaning = figure.meaning().to_owned();
    if let Some(first) = meaning.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    format!("{name}: {meaning}")
}

/// The page, one device after the other.
pub fn timeline_page(report: &TimelineReport, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(&style.heading(&plain(&report.path)));
    page.warnings(&report.warnings);
    for device in &report.devices {
        let first = device.first_event;
        let axis = Axis {
            events: device.events,
            starts: device.buckets.first_event.iter().map(|event| event - first).collect(),
            columns: style.width.saturating_sub(LABELS + 2 + NOTES).max(10),
        };
        Course { page: &mut page, device, axis }.draw();
    }
    page.out
}

/// One device being drawn.
struct Course<'a> {
    page: &'a mut Page,
    device: &'a DeviceTimeline,
    axis: Axis,
}

impl Course<'_> {
    fn draw(&mut self) {
        let device = self.device;
        let style = self.page.style;
        let (solid, shaded) = style.pick(("█", "░"), ("#", "."));
        self.page.heading(&format!(
            "Device {} over time: {}",
            device.device,
            extent(device.first_event, device.events, device.trace_events, device.duration_us)
        ));
        self.row("", &format!("{solid} allocated  {shaded} reserved, not allocated"), "");
        let [reserved, allocated] = [Figure::Reserved, Figure::Allocated].map(|figure| {
            let series = device.series.size(figure).into_iter();
            self.axis.spread(series.flat_map(|series| series.max.iter().copied()), u64::max)
        });
        self.page.out.push_str(&area(&reserved, &allocated, style));
        self.entries();
        self.private_pools();
        self.marks();
        self.ranges();
        self.kinds();
        self.ratios();
        self.moments();
        self.events();
    }

    /// `text` in the columns of the chart, between its name and a note.
    fn row(&mut self, name: &str, text: &str, note: &str) {
        let columns = self.axis.columns;
        self.page.line(&format!("{name:>LABELS$}  {text:<columns$}  {note}"));
    }

    fn entries(&mut self) {
        let first = self.device.first_event;
        let left = format!("entry {}", count(first));
        let right = format!("entry {}", count(first + self.device.events - 1));
        let room = self.axis.columns.saturating_sub(left.chars().count());
        self.row("", &format!("{left}{right:>room$}"), "");
    }

    /// What private pools hold from the device.
    fn private_pools(&mut self) {
        if let Some(series) =
            self.device.series.size(Figure::PrivateReserved).filter(|series| series.highest > 0)
        {
            let line = self.amounts(series);
            self.row("in private", &line, &format!("to {}", size(series.highest)));
        }
    }

    /// A series at its most in each column, on a scale of its own; blank where there is nothing.
    fn amounts(&self, series: &Series<u64>) -> String {
        let values = self.axis.spread(series.max.iter().copied(), u64::max);
        let line = strip(&values, series.highest, self.page.style);
        let is_there = values.iter().map(|value| *value > 0);
        line.chars().zip(is_there).map(|(c, is)| if is { c } else { ' ' }).collect()
    }

    fn marks(&mut self) {
        let marks = &self.device.marks;
        for (name, kind) in [
            ("failed", &marks.oom),
            ("reclaim", &marks.reclaim),
            ("empty_cache", &marks.empty_cache),
            ("snapshot", &marks.snapshot),
        ] {
            if kind.count > 0 {
                let marked = kind.in_bucket.iter().map(|n| *n > 0);
                let columns = self.axis.spread(marked, |a, b| a || b);
                let line = pointers(&columns, self.page.style);
                self.row(name, &line, &counted(kind.count, "time"));
            }
        }
    }

    fn ranges(&mut self) {
        let mark = self.page.style.pick('▬', '=');
        for (range, letter) in self.device.ranges.names.iter().take(RANGES).zip('a'..) {
            let mut buckets = vec![false; self.axis.starts.len()];
            for [first, last] in &range.in_buckets {
                let [first, last] =
                    [first, last].map(|n| usize::try_from(*n).unwrap_or(usize::MAX));
                buckets.get_mut(first..=last).unwrap_or_default().fill(true);
            }
            let columns = self.axis.spread(buckets, |a, b| a || b);
            let line: String =
                columns.iter().map(|is_in| if *is_in { mark } else { ' ' }).collect();
            self.row(&format!("range {letter}"), &line, &counted(range.count, "time"));
        }
    }

    fn kinds(&mut self) {
        let series = &self.device.series;
        self.page
            .heading("Free memory, at its most in each column; each line on a scale of its own");
        self.row("", "", "highest");
        let mut words = Vec::new();
        for (name, figure) in KINDS {
            let Some(series) = series.size(figure).filter(|series| series.highest > 0) else {
                continue;
            };
            words.push(said(name, figure));
            let line = self.amounts(series);
            self.row(name, &line, &size(series.highest));
        }
        self.page.named("", &words.join("; "));
    }

    fn ratios(&mut self) {
        let series = &self.device.series;
        self.page.heading("Fragmentation, from 0% to 100%, at the best moment of each column");
        for (name, figure) in RATIOS {
            let Some(series) = series.ratio(figure) else { continue };
            let columns = self.axis.spread(series.min.iter().copied(), f64::min);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to 1000"
            )]
            let thousandths: Vec<u64> = columns.iter().map(|v| (v * 1000.0) as u64).collect();
            let line = strip(&thousandths, 1000, self.page.style);
            let [low, high] =
                [f64::min, f64::max].map(|extreme| columns.iter().copied().reduce(extreme));
            let range = [low, high].map(|value| percent(value.unwrap_or(0.0)));
            self.row(name, &line, &format!("{}-{}", range[0], range[1]));
        }
        self.page.named("", &RATIOS.map(|(name, figure)| said(name, figure)).join("; "));
    }

    /// The largest value of a series and when it was reached.
    fn highest(&self, series: &Series<u64>) -> String {
        let when = match series.highest_event {
            Some(event) => self.when(event, series.highest_time_us),
            None => "before the first entry shown".to_owned(),
        };
        format!("{} {when}", size(series.highest))
    }

    fn when(&self, event: u64, time_us: Option<u64>) -> String {
        let after =
            time_us.zip(self.device.start_us).map(|(time, start)| time.saturating_sub(start));
        let after = after.map(|us| format!(", after {}", duration(us))).unwrap_or_default();
        format!("at entry {}{after}", count(event))
    }

    fn moments(&mut self) {
        let series = &self.device.series;
        self.page.heading("Highest");
        for (name, figure) in HIGHEST {
            if let Some(series) = series.size(figure).filter(|series| series.highest > 0) {
                let text = self.highest(series);
                self.page.named(name, &text);
            }
        }
    }

    fn events(&mut self) {
        let device = self.device;
        let marks = &device.marks;
        let kinds = [
            ("failed", &marks.oom, "request", "could not be served"),
            ("reclaim", &marks.reclaim, "request", RECLAIM),
            ("empty_cache", &marks.empty_cache, "time", "the program had cached memory given back"),
        ];
        let ranges = &device.ranges;
        if kinds.iter().all(|(_, kind, ..)| kind.count == 0) && ranges.names.is_empty() {
            return;
        }
        self.page.heading("What happened");
        for (name, kind, noun, what) in kinds {
            if kind.count > 0 {
                let mut largest: Vec<_> = kind.largest.iter().collect();
                largest.sort_by_key(|mark| std::cmp::Reverse(mark.bytes));
                largest.truncate(TOLD);
                largest.sort_by_key(|mark| mark.event);
                let told = largest.iter().map(|mark| {
                    format!("{} {}", size(mark.bytes), self.when(mark.event, mark.time_us))
                });
                let told: Vec<String> = told.collect();
                let more = if kind.count > TOLD as u64 { "; the largest: " } else { ": " };
                let text = format!("{} {what}{more}{}", counted(kind.count, noun), told.join("; "));
                self.page.named(name, &text);
            }
        }
        for (range, letter) in ranges.names.iter().take(RANGES).zip('a'..) {
            let text = format!(
                "{} ({}): {} in all",
                plain(&range.name),
                range.source,
                counted(range.events, "entry")
            );
            self.page.named(&format!("range {letter}"), &text);
        }
        let more = ranges.names.len().saturating_sub(RANGES) as u64;
        if more > 0 {
            self.page
                .named("", &format!("and {}: see --format json", counted(more, "other range")));
        }
    }
}

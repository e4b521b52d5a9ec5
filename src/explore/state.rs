//! The state of the screen of one device.

use std::ops::Range;

use itertools::Itertools as _;
use ratatui_core::layout::Rect;

use super::layout::{Layout, View};
use super::recording::{Grouping, Moment, Recording};
use super::rows::{self, HolderRow};
use super::text::wrap;
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::base::ids::to_u32;
use crate::base::units::size;
use crate::output::page::data::is_in_map;
use crate::output::wording::{describe_cause, summarize_device};
use crate::snapshot::Action;
use crate::study::attribution::Category;
use crate::study::{DeviceStudy, PositionSelector, TracePosition};

/// The lowest screen on which the answer of the analysis may take several lines.
const HIGH: u16 = 20;
/// A narrower screen has a shorter answer.
const NARROW: u16 = 60;

/// The consequence of a key for the program around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Draw.
    Draw,
    /// Show the next device.
    NextDevice,
    /// Leave.
    Leave,
}

/// A box over the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Popup {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    pub(super) scroll: usize,
}

/// The answer about one failed request, or about a device on which none failed.
#[derive(Debug)]
pub(super) struct FailureResult {
    /// The entry of the request; `None` if none failed.
    entry: Option<u64>,
    pub(super) answer: String,
    /// The answer without the reason, and shorter for narrow screens.
    pub(super) headline: String,
    pub(super) brief: String,
    /// Why it failed, and what to do; empty if there is nothing to say.
    pub(super) why: String,
    pub(super) action: String,
    /// The size of the device, or what was within reach; `None` if neither is known.
    pub(super) capacity: Option<u64>,
    /// The map shows why.
    is_in_map: bool,
}

impl FailureResult {
    /// The result about the last failed request of `device`.
    fn from_device(report: &SnapshotReport, device: &DeviceReport) -> Self {
        let (summary, failed) = (summarize_device(report, device), device.ooms.last());
        let why = failed.map_or_else(String::new, |oom| describe_cause(oom, device));
        let headline = summary.answer.strip_suffix(&why).unwrap_or(&summary.answer).trim_end_matches("; ");
        let brief = failed.map(|oom| format!("{} failed at {}", size(oom.requested_bytes), oom.location.brief_label()));
        let reach = failed.map(|oom| oom.reserved_bytes.saturating_add(oom.device_free_bytes));
        Self {
            entry: failed.map(|oom| oom.event),
            headline: headline.to_owned(),
            brief: brief.unwrap_or_else(|| headline.to_owned()),
            action: summary.action.unwrap_or_default(),
            capacity: device.capacity_bytes.or(reach),
            is_in_map: failed.is_some_and(|oom| is_in_map(oom.verdict)),
            answer: summary.answer,
            why,
        }
    }
}

/// The analysis of a device, as it is done in the background.
#[derive(Debug)]
pub struct Analyzed(Vec<FailureResult>);

/// Number of failed requests, the last of a device, with a result of their own.
const MAX_RESULTS: usize = 16;

impl Analyzed {
    /// The results that `report` has for each failed request of `device`.
    pub fn from_report(device: DeviceStudy<'_, '_>, report: &SnapshotReport) -> Self {
        let Some(one) = report.devices.iter().find(|one| one.device == device.id()) else { return Self(Vec::new()) };
        let failures = one.ooms.len();
        if failures == 0 {
            return Self(vec![FailureResult::from_device(report, one)]);
        }
        let last = failures.saturating_sub(MAX_RESULTS)..failures;
        Self(last.map(|index| FailureResult::from_device(report, &one.at_failure(index))).collect())
    }
}

/// One device on the screen.
#[derive(Debug)]
pub struct State<'s, 'a> {
    pub(super) device: DeviceStudy<'s, 'a>,
    pub(super) path: String,
    pub(super) recording: Option<Recording>,
    /// In the order of the failed requests; empty until the analysis is done.
    results: Vec<FailureResult>,
    pub(super) view: View,
    pub(super) moment: Moment,
    /// The moments of the picture.
    pub(super) zoom: Range<Moment>,
    /// The grouping of the pictures, and that of the holders.
    pub(super) groupings: [usize; 2],
    /// The user has pressed a key.
    pub(super) is_touched: bool,
    /// The selected row of each view; in the map, a live allocation.
    pub(super) selected: [Option<usize>; 3],
    pub(super) marked: Option<Moment>,
    /// The place that the user types.
    pub(super) prompt: Option<String>,
    pub(super) popup: Option<Popup>,
    pub(super) message: Option<String>,
    pub(super) has_others: bool,
}

impl<'s, 'a> State<'s, 'a> {
    /// Opens `device` of the file at `path`, at its last failed request, else at the peak. `has_others`: the file has other
    /// devices.
    pub fn new(device: DeviceStudy<'s, 'a>, path: &str, has_others: bool) -> Self {
        let end = to_u32(device.device().len()) + 1;
        let last_failure = device.failed_requests().next_back();
        let peak = device.history().and_then(|history| history.peak.allocated_event);
        let entry = last_failure.map(|entry| entry as u64).or(peak);
        let moment = entry.map_or(0, |entry| to_u32(usize::try_from(entry).unwrap_or(0)) + 1);
        Self {
            device,
            path: path.to_owned(),
            recording: None,
            results: Vec::new(),
            view: if device.device().is_empty() { View::Map } else { View::Memory },
            moment: moment.min(end - 1),
            zoom: 0..end,
            groupings: [0, 1],
            is_touched: false,
            selected: [None; 3],
            marked: None,
            prompt: None,
            popup: None,
            message: None,
            has_others,
        }
    }

    /// The allocations were read.
    pub fn set_recording(&mut self, recording: Recording) {
        // By line if no allocation has a category.
        let has_category = recording.allocations.iter().any(|one| one.category != Category::Other);
        self.groupings[0] = usize::from(!has_category);
        self.recording = Some(recording);
    }

    /// The analysis is done.
    pub fn set_analysis(&mut self, analyzed: Analyzed) {
        self.results = analyzed.0;
        // It opens on the view that shows why.
        if !self.is_touched && self.result().is_some_and(|result| result.is_in_map) {
            self.view = View::Map;
        }
    }

    pub(super) fn last(&self) -> Moment {
        to_u32(self.device.device().len())
    }

    /// The result on the request that fails at the moment, else on the last one; `None` until the analysis is done.
    pub(super) fn result(&self) -> Option<&FailureResult> {
        let here = self.moment.checked_sub(1).map(u64::from);
        self.results.iter().find(|result| here.is_some() && result.entry == here).or(self.results.last())
    }

    /// The answer of the analysis, in as many lines as the screen `area` has room for.
    pub(super) fn answer_lines(&self, area: Rect) -> Vec<String> {
        let Some(result) = self.result() else { return vec!["analyzing…".to_owned()] };
        if area.width < NARROW {
            return [&result.brief, &result.why].into_iter().filter(|line| !line.is_empty()).cloned().collect();
        }
        if self.has_side(area) {
            return vec![result.headline.clone()];
        }
        let mut lines = wrap(&result.answer, area.width.into());
        if area.height < HIGH {
            return vec![lines.iter().map(|line| line.trim_start()).join(" ")];
        }
        let rest = lines.split_off(1).iter().map(|line| line.trim_start()).join(" ");
        lines.extend(Some(rest).filter(|rest| !rest.is_empty()));
        lines.extend(Some(format!("do: {}", result.action)).filter(|_| !result.action.is_empty()));
        lines
    }

    /// Whether the answer has a column beside the picture.
    pub(super) fn has_side(&self, area: Rect) -> bool {
        self.view == View::Memory && self.last() > 0 && Layout::is_wide(area)
    }

    /// The parts of the screen `area`.
    pub(super) fn layout(&self, area: Rect) -> Layout {
        Layout::new(area, u16::try_from(self.answer_lines(area).len()).unwrap_or(1))
    }

    /// The partition that the views show.
    pub(super) fn grouping(&self) -> Option<&Grouping> {
        self.recording.as_ref()?.groupings.get(self.groupings[usize::from(self.view == View::Holders)])
    }

    /// The holders at the moment.
    pub(super) fn holders(&self) -> Vec<HolderRow> {
        let Some(recording) = &self.recording else { return Vec::new() };
        let grouping = &recording.groupings[self.groupings[1]];
        // Beside the picture they have its colours.
        let colours = self.grouping().filter(|_| self.view == View::Memory).unwrap_or(grouping);
        rows::holders(recording, grouping, colours, self.moment, self.marked)
    }

    /// The request that fails at the moment, else the last one that failed; 0 if none did.
    pub(super) fn failed_request(&self) -> u64 {
        let trace = self.device.device();
        let here = self.moment.checked_sub(1).map(|entry| entry as usize);
        let here = here.filter(|entry| trace.action(*entry) == Some(Action::Oom));
        here.or_else(|| self.device.failed_requests().next_back()).map_or(0, |entry| trace.entry(entry).size)
    }
}

/// The fewest moments that fill a picture.
const MIN_ZOOM: u32 = 8;

impl State<'_, '_> {
    /// The number of moments in the picture.
    pub(super) fn width(&self) -> i64 {
        i64::from(self.zoom.end) - i64::from(self.zoom.start)
    }

    pub(super) fn go(&mut self, moment: i64) {
        self.moment = Moment::try_from(moment.max(0)).unwrap_or(Moment::MAX).min(self.last());
        // The picture follows.
        let width = self.width();
        if self.moment < self.zoom.start {
            self.pan(i64::from(self.moment) - i64::from(self.zoom.start) - width / 4);
        } else if self.moment >= self.zoom.end {
            self.pan(i64::from(self.moment) - i64::from(self.zoom.end) + 1 + width / 4);
        }
        self.selected[View::Map as usize] = None;
    }

    pub(super) fn pan(&mut self, by: i64) {
        let width = to_u32(self.zoom.len());
        let start = (i64::from(self.zoom.start) + by).clamp(0, i64::from(self.last() + 1 - width));
        let start = Moment::try_from(start).unwrap_or(0);
        self.zoom = start..start + width;
    }

    /// Shows `width` moments, with the cursor where it is.
    pub(super) fn zoom_to(&mut self, width: usize) {
        let all = u64::from(self.last()) + 1;
        let width = (width as u64).max(u64::from(MIN_ZOOM)).min(all);
        let before = u64::from(self.moment.saturating_sub(self.zoom.start)) * width / (self.zoom.len() as u64).max(1);
        let start = u64::from(self.moment).saturating_sub(before).min(all - width);
        let [start, end] = [start, start + width].map(|moment| Moment::try_from(moment).unwrap_or(Moment::MAX));
        self.zoom = start..end;
    }

    /// Goes where `--at` of a command would be.
    pub(super) fn go_to(&mut self, selector: PositionSelector) {
        match self.device.position(selector) {
            Some(TracePosition::Entry { event }) => self.go(i64::try_from(event).unwrap_or(i64::MAX).saturating_add(1)),
            Some(TracePosition::Start) => self.go(0),
            Some(TracePosition::Snapshot) => self.go(self.last().into()),
            None => self.message = Some(selector.describe_missing()),
        }
    }

    pub(super) fn go_to_next_failure(&mut self) {
        let failures = self.device.failed_requests().map(|entry| entry + 1).collect_vec();
        let next = failures.iter().find(|moment| **moment > self.moment as usize);
        match next.or(failures.first()) {
            Some(moment) => self.go(i64::try_from(*moment).unwrap_or(i64::MAX)),
            None => self.message = Some("no request failed".to_owned()),
        }
    }

    pub(super) fn go_to_step(&mut self, is_next: bool) {
        let ends = self.device.phases().steps.ends();
        let moment = self.moment;
        let found = if is_next {
            ends.get(ends.partition_point(|end| *end <= moment))
        } else {
            ends[..ends.partition_point(|end| *end < moment)].last()
        };
        match found {
            Some(end) => self.go((*end).into()),
            None => self.message = Some(format!("no {} step", if is_next { "later" } else { "earlier" })),
        }
    }

    /// Marks the moment; at another one, shows what changed between the two.
    pub(super) fn mark(&mut self) {
        match self.marked {
            Some(marked) if marked != self.moment => self.view = View::Holders,
            _ => self.marked = Some(self.moment),
        }
    }
}

//! The state of the screen of one device.

use std::ops::Range;

use super::layout::View;
use super::recording::{Grouping, Moment, Recording};
use super::rows::{self, HolderRow, TriedEntry};
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::base::ids::to_u32;
use crate::snapshot::Action;
use crate::study::DeviceStudy;
use crate::whatif::{Conditions, TriedRun};

/// The consequence of a key for the program around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Draw.
    Draw,
    /// Replay in the background, then call [`State::set_run`].
    Replay(Conditions),
    /// Show the table of ranks.
    Ranks,
    /// Leave.
    Leave,
}

/// A line that the user types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    /// `/`, `:` or `c`.
    pub(super) key: char,
    pub(super) text: String,
}

/// A box over the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Popup {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    pub(super) scroll: usize,
}

/// A replay that was laid over the recorded run.
#[derive(Debug)]
pub(super) struct ShownRun {
    pub(super) name: String,
    pub(super) run: TriedRun,
}

/// The allocations of a device, as they are read in the background.
#[derive(Debug)]
pub struct Loaded(Recording);

impl Loaded {
    /// Reads the lifetimes of all allocations of `device`.
    pub fn from_device(device: DeviceStudy<'_, '_>) -> Self {
        Self(Recording::from_device(device))
    }
}

/// One device on the screen.
#[derive(Debug)]
pub struct State<'s, 'a> {
    pub(super) device: DeviceStudy<'s, 'a>,
    pub(super) path: String,
    pub(super) recording: Option<Recording>,
    pub(super) report: Option<Box<SnapshotReport>>,
    pub(super) view: View,
    pub(super) moment: Moment,
    /// The moments of the picture.
    pub(super) zoom: Range<Moment>,
    pub(super) grouping: usize,
    /// The matches of a search, in place of the chosen grouping.
    pub(super) found: Option<Grouping>,
    /// The selected row of each view; in the map, a live allocation.
    pub(super) selected: [Option<usize>; 4],
    pub(super) marked: Option<Moment>,
    pub(super) prompt: Option<Prompt>,
    pub(super) popup: Option<Popup>,
    pub(super) shown_run: Option<ShownRun>,
    /// The replay that runs in the background.
    pub(super) running: Option<String>,
    pub(super) message: Option<String>,
    pub(super) has_ranks: bool,
    pub(super) dragged_from: Option<u16>,
    pub(super) commands: Vec<String>,
}

impl<'s, 'a> State<'s, 'a> {
    /// Opens `device` of the file at `path`, at its last failed request, else at the peak. `has_ranks`: there are others.
    pub fn new(device: DeviceStudy<'s, 'a>, path: &str, has_ranks: bool) -> Self {
        let end = to_u32(device.device().len()) + 1;
        let last_failure = device.failed_requests().next_back();
        let peak = device.history().and_then(|history| history.peak.allocated_event);
        let entry = last_failure.map(|entry| entry as u64).or(peak);
        let moment = entry.map_or(0, |entry| to_u32(usize::try_from(entry).unwrap_or(0)) + 1);
        Self {
            device,
            path: path.to_owned(),
            recording: None,
            report: None,
            view: View::Memory,
            moment: moment.min(end - 1),
            zoom: 0..end,
            grouping: 0,
            found: None,
            selected: [None; 4],
            marked: None,
            prompt: None,
            popup: None,
            shown_run: None,
            running: None,
            message: None,
            has_ranks,
            dragged_from: None,
            commands: Vec::new(),
        }
    }

    /// The allocations were read.
    pub fn set_recording(&mut self, loaded: Loaded) {
        self.recording = Some(loaded.0);
    }

    /// The analysis is done.
    pub fn set_report(&mut self, report: SnapshotReport) {
        self.report = Some(Box::new(report));
    }

    /// The replay is done.
    pub fn set_run(&mut self, outcome: Result<TriedRun, String>) {
        let name = self.running.take().unwrap_or_default();
        match outcome {
            Ok(run) => self.shown_run = Some(ShownRun { name, run }),
            Err(message) => self.message = Some(message),
        }
    }

    /// Commands that show the same as the moments where the user pressed `y`.
    pub fn commands(&self) -> &[String] {
        &self.commands
    }

    pub(super) fn last(&self) -> Moment {
        to_u32(self.device.device().len())
    }

    /// The partition that the views show.
    pub(super) fn grouping(&self) -> Option<&Grouping> {
        let chosen = self.recording.as_ref()?.groupings.get(self.grouping);
        self.found.as_ref().or(chosen)
    }

    /// The holders at the moment.
    pub(super) fn holders(&self) -> Vec<HolderRow> {
        let Some(recording) = &self.recording else { return Vec::new() };
        let grouping = &recording.groupings[self.grouping];
        rows::holders(recording, grouping, self.found.as_ref(), self.moment, self.marked)
    }

    /// The analysis of the device, when it is done.
    pub(super) fn device_report(&self) -> Option<&DeviceReport> {
        self.report.as_ref()?.devices.iter().find(|one| one.device == self.device.id())
    }

    /// The request that fails at the moment, else the last one that failed; 0 if none did.
    pub(super) fn failed_request(&self) -> u64 {
        let trace = self.device.device();
        let here = self.moment.checked_sub(1).map(|entry| entry as usize);
        let here = here.filter(|entry| trace.action(*entry) == Some(Action::Oom));
        here.or_else(|| self.device.failed_requests().next_back()).map_or(0, |entry| trace.entry(entry).size)
    }

    /// The rows of what was tried.
    pub(super) fn tried(&self) -> Vec<TriedEntry> {
        rows::tried(self.device, self.device_report())
    }
}

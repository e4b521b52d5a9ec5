//! Positions in a recording, and the memory of a device at a position.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::DeviceStudy;
use crate::base::ids::StackId;
use crate::replay::literal::{Layout, Tracking};
use crate::study::memory::{BlockSums, MemoryReport, report_memory, sum_live_by_stack};

/// A position in a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "at", rename_all = "lowercase")]
pub enum TracePosition {
    /// The snapshot itself.
    #[default]
    Snapshot,
    /// Before the first trace entry.
    Start,
    /// Just after a trace entry.
    Entry {
        /// Entry index in the device's trace.
        event: u64,
    },
}

impl TracePosition {
    /// The position after entry `event`; the start if `None`.
    pub fn after(event: Option<u64>) -> Self {
        event.map_or(Self::Start, |event| Self::Entry { event })
    }
}

/// Selects a position on each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionSelector {
    /// The peak of allocated bytes within the window.
    Peak,
    /// The last failed request within the window.
    Failure,
    /// Just after the entry with this index.
    Entry(u64),
    /// The end of the training step with this number, from 0.
    Step(u32),
    /// The end of the window.
    End,
}

impl fmt::Display for PositionSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peak => f.write_str("peak"),
            Self::Failure => f.write_str("failure"),
            Self::Entry(entry) => write!(f, "{entry}"),
            Self::Step(step) => write!(f, "step:{step}"),
            Self::End => f.write_str("end"),
        }
    }
}

impl FromStr for PositionSelector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let step = text.strip_prefix("step").map(|step| step.trim_start_matches([':', '=', '-', ' ']));
        let parsed = match (text, step) {
            ("peak" | "max", _) => Some(Self::Peak),
            ("failure" | "oom", _) => Some(Self::Failure),
            ("end" | "last", _) => Some(Self::End),
            (_, Some(step)) => step.parse().ok().map(Self::Step),
            (_, None) => text.replace(',', "").parse().ok().map(Self::Entry),
        };
        parsed.ok_or("give the index of a trace entry or step:N, both counted from 0, or peak, failure or end")
    }
}

impl PositionSelector {
    /// Why recordings do not have the position.
    pub fn describe_missing(self) -> String {
        match self {
            Self::Peak | Self::End => "no history was recorded".to_owned(),
            Self::Failure => "no request failed".to_owned(),
            Self::Entry(entry) => format!("no trace has an entry {entry}; entries count from 0"),
            Self::Step(step) => format!("no trace shows a step {step}; steps count from 0"),
        }
    }
}

impl DeviceStudy<'_, '_> {
    /// The selected position; `None` if this device's trace does not have it.
    pub fn position(self, selector: PositionSelector) -> Option<TracePosition> {
        let history = self.history()?;
        let event = match selector {
            PositionSelector::Peak => history.peak_entry(),
            PositionSelector::Failure => Some(self.failed_requests().next_back()? as u64),
            PositionSelector::End => (history.first_entry + history.entries).checked_sub(1),
            PositionSelector::Step(step) => Some(self.phases().steps.entries(step)?.end.checked_sub(1)? as u64),
            PositionSelector::Entry(event) if event < history.trace_entries => Some(event),
            PositionSelector::Entry(_) => return None,
        };
        Some(TracePosition::after(event))
    }

    /// The memory at `position`: from the snapshot's segments, or from a literal replay.
    pub fn memory_at(self, position: TracePosition) -> MemoryAt {
        let mut layout = None;
        if position != TracePosition::Snapshot {
            self.replay(Tracking::Totals, |step| {
                if position == TracePosition::after(step.at.map(|(index, _)| index as u64)) {
                    layout = Some(Layout::from_tiling(step.tiling, self.id()));
                }
            });
        }
        let (figures, live_by_stack) = match &layout {
            None => (self.memory().clone(), self.live_by_stack().clone()),
            Some(Layout { segments, blocks }) => (
                report_memory(segments.iter(), blocks, &self.snapshot().pools, self.settings()),
                sum_live_by_stack(segments.iter(), blocks),
            ),
        };
        MemoryAt { layout, figures, live_by_stack }
    }
}

/// The memory of a device at one position.
#[derive(Debug)]
pub struct MemoryAt {
    /// Segments and blocks; `None` at the snapshot, where the file has them.
    pub layout: Option<Layout>,
    /// Totals, pools and fragmentation.
    pub figures: MemoryReport,
    /// Live blocks by the stack that allocated them.
    pub live_by_stack: BlockSums<StackId>,
}

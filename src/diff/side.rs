//! One device of one snapshot at the moment compared.

use serde::Serialize;

use super::names::{Place, Vocabulary};
use super::report::At;
use crate::analysis::DeviceReport;
use crate::conf::Settings;
use crate::facts::{Keep, Layout, Literal};
use crate::ids::StackId;
use crate::memory::{Memory, figures, live_by_stack};
use crate::snapshot::{Block, Device, Segment};
use crate::study::Peak;

/// What one stack holds.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) id: StackId,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) places: Vec<Place>,
}

/// A device at the moment compared.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) memory: Memory,
    pub(super) moment: Moment,
    /// Who holds the allocated memory, most first.
    pub(super) stacks: Vec<Stack>,
}

/// A device of a snapshot, and the snapshot's place among the two: before (0) or after (1).
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) device: Device<'a>,
    pub(super) side: usize,
    pub(super) settings: &'a Settings,
    pub(super) words: &'a Vocabulary,
}

/// A moment of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "at", rename_all = "lowercase")]
pub enum Moment {
    /// When the snapshot was taken.
    #[default]
    Snapshot,
    /// Before the first entry.
    Start,
    /// Just after an entry.
    Entry {
        /// Index in the device's trace.
        event: u64,
    },
}

impl Side {
    /// Looks at the device at the moment `at`, in the entries before `until` whose highest totals are `peak`.
    pub(super) fn new(
        of: Of<'_>,
        report: &DeviceReport,
        at: At,
        until: Option<u64>,
        peak: &Peak,
    ) -> Self {
        let after =
            |event: Option<u64>| event.map_or(Moment::Start, |event| Moment::Entry { event });
        let moment = match (at, until) {
            (At::Peak, None) if ends_at_its_peak(report) => Moment::Snapshot,
            (At::Peak, _) => after(peak.allocated_event),
            (At::Snapshot, None) => Moment::Snapshot,
            (At::Snapshot, Some(until)) => after(until.checked_sub(1)),
        };
        let entry = match moment {
            Moment::Snapshot => {
                let blocks = &of.device.snapshot().blocks;
                return Self::of(of, of.device.segments(), blocks, moment);
            }
            Moment::Start => None,
            Moment::Entry { event } => Some(event),
        };
        let layout = layout_after(of, entry);
        Self::of(of, layout.segments.iter(), &layout.blocks, moment)
    }

    fn of<'a>(
        of: Of<'_>,
        segments: impl Iterator<Item = &'a Segment> + Clone,
        blocks: &[Block],
        moment: Moment,
    ) -> Self {
        let snapshot = of.device.snapshot();
        let memory = figures(segments.clone(), blocks, &snapshot.pools, of.settings);
        let mut stacks: Vec<Stack> = live_by_stack(segments, blocks)
            .into_iter()
            .map(|(id, held)| Stack {
                id,
                bytes: held.bytes,
                blocks: held.blocks,
                places: of.words.stack(of.side, snapshot, id),
            })
            .collect();
        stacks.sort_by_key(|stack| (std::cmp::Reverse(stack.bytes), stack.id));
        Self { memory, moment, stacks }
    }
}

/// Whether the snapshot itself shows the peak: nothing was recorded, or it grew up to the last entry.
fn ends_at_its_peak(device: &DeviceReport) -> bool {
    device.timeline.as_ref().is_none_or(|timeline| {
        device.peak.allocated_event == timeline.trace_events.checked_sub(1)
            && device.peak.allocated_bytes == device.memory.allocated_bytes
    })
}

/// The memory of the device just after an entry of its trace; before the first one for `None`.
fn layout_after(of: Of<'_>, event: Option<u64>) -> Layout {
    let mut layout = Layout::default();
    let literal = Literal { device: of.device, settings: of.settings };
    literal.run(Keep::Sums, |step| {
        if step.entry.map(|(index, _)| index as u64) == event {
            layout = Layout::of(step.tiling, of.device.id());
        }
    });
    layout
}

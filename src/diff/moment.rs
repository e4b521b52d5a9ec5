//! One device of one snapshot at the moment compared.

use serde::Serialize;

use super::names::{Place, Vocabulary};
use super::options::At;
use crate::facts::{Keep, Layout};
use crate::ids::StackId;
use crate::memory::{Memory, Sum, figures, live_by_stack};
use crate::study::{DeviceStudy, Peak};

/// What one stack holds.
#[derive(Debug)]
pub(super) struct HeldStack {
    pub(super) id: StackId,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) places: Vec<Place>,
}

/// The memory of a device at the moment compared.
#[derive(Debug, Default)]
pub(super) struct MemoryAt {
    pub(super) memory: Memory,
    pub(super) moment: Moment,
    /// Who holds the allocated memory, most first.
    pub(super) stacks: Vec<HeldStack>,
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

impl Moment {
    /// The moment `at`, in the entries before `until` whose highest totals are `peak`.
    fn of(device: DeviceStudy<'_, '_>, at: At, until: Option<u64>, peak: &Peak) -> Self {
        let after = |event: Option<u64>| event.map_or(Self::Start, |event| Self::Entry { event });
        match (at, until) {
            (At::Peak, None) if ends_at_its_peak(device) => Self::Snapshot,
            (At::Peak, _) => after(peak.allocated_event),
            (At::Snapshot, None) => Self::Snapshot,
            (At::Snapshot, Some(until)) => after(until.checked_sub(1)),
        }
    }
}

impl MemoryAt {
    /// Looks at `device` of the snapshot before (`side` 0) or after (1) at the moment `at`, in the entries
    /// before `until` whose highest totals are `peak`.
    pub(super) fn new(
        (side, device): (usize, DeviceStudy<'_, '_>),
        words: &Vocabulary,
        at: At,
        until: Option<u64>,
        peak: &Peak,
    ) -> Self {
        let moment = Moment::of(device, at, until, peak);
        let snapshot = device.snapshot();
        let (memory, held) = match moment {
            Moment::Snapshot => (device.memory().clone(), device.held().clone()),
            Moment::Start | Moment::Entry { .. } => {
                let Layout { segments, blocks, .. } = layout_after(device, moment);
                let memory = figures(segments.iter(), &blocks, &snapshot.pools, device.settings());
                (memory, live_by_stack(segments.iter(), &blocks))
            }
        };
        let stack = |(id, held): (StackId, Sum)| HeldStack {
            id,
            bytes: held.bytes,
            blocks: held.blocks,
            places: words.stack(side, snapshot, id),
        };
        let mut stacks: Vec<HeldStack> = held.into_iter().map(stack).collect();
        stacks.sort_by_key(|stack| (std::cmp::Reverse(stack.bytes), stack.id));
        Self { memory, moment, stacks }
    }
}

/// Whether the snapshot itself shows the peak: nothing was recorded, or it grew up to the last entry.
fn ends_at_its_peak(device: DeviceStudy<'_, '_>) -> bool {
    let peak = device.peak();
    device.over_time().is_none_or(|over_time| {
        peak.allocated_event == over_time.trace_events.checked_sub(1)
            && peak.allocated_bytes == device.memory().allocated_bytes
    })
}

/// The memory of `device` at a moment of its trace.
fn layout_after(device: DeviceStudy<'_, '_>, moment: Moment) -> Layout {
    let mut layout = Layout::default();
    device.follow(Keep::Sums, |step| {
        let shown = match step.entry {
            None => Moment::Start,
            Some((index, _)) => Moment::Entry { event: index as u64 },
        };
        if shown == moment {
            layout = Layout::of(step.tiling, device.id());
        }
    });
    layout
}

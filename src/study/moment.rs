//! Moments of a recording, and a device's memory at one.

use serde::Serialize;

use super::DeviceStudy;
use crate::base::ids::StackId;
use crate::replay::facts::{Keep, Layout};
use crate::study::memory::{Memory, SegmentList, Sums, figures, list_segments, live_by_stack};

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
    /// The moment after `event`; the start for none.
    pub fn after(event: Option<u64>) -> Self {
        event.map_or(Self::Start, |event| Self::Entry { event })
    }
}

/// A moment as it is asked for: each device has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedMoment {
    /// When most was allocated, in the part of the trace that is looked at.
    Peak,
    /// The last failed request in that part.
    Failure,
    /// Just after the entry of this index.
    Entry(u64),
}

impl<'s, 'a> DeviceStudy<'s, 'a> {
    /// The moment `asked` for, if this device's recording has it.
    pub fn moment(self, asked: AskedMoment) -> Option<Moment> {
        let over_time = self.over_time()?;
        match asked {
            AskedMoment::Peak => Some(Moment::after(
                over_time.peak.allocated_event.or(over_time.first.checked_sub(1)),
            )),
            AskedMoment::Failure => Some(Moment::after(Some(self.failed().next_back()? as u64))),
            AskedMoment::Entry(event) => {
                (event < over_time.trace_events).then_some(Moment::Entry { event })
            }
        }
    }

    /// Its memory at `moment`: as the file describes it, or as a literal replay has it then.
    pub fn memory_at(self, moment: Moment) -> MemoryAt<'s, 'a> {
        let layout = self.layout(moment);
        let (figures, held) = match &layout {
            None => (self.memory().clone(), self.held().clone()),
            Some(Layout { segments, blocks }) => (
                figures(segments.iter(), blocks, &self.snapshot().pools, self.settings()),
                live_by_stack(segments.iter(), blocks),
            ),
        };
        MemoryAt { device: self, layout, figures, held }
    }

    /// Its segments and blocks at a `moment` of its trace; nothing for [`Moment::Snapshot`], which the file itself
    /// describes.
    fn layout(self, moment: Moment) -> Option<Layout> {
        if moment == Moment::Snapshot {
            return None;
        }
        let mut layout = None;
        self.follow(Keep::Sums, |step| {
            if moment == Moment::after(step.entry.map(|(index, _)| index as u64)) {
                layout = Some(Layout::of(step.tiling, self.id()));
            }
        });
        layout
    }
}

/// A device's memory at one moment.
#[derive(Debug)]
pub struct MemoryAt<'s, 'a> {
    device: DeviceStudy<'s, 'a>,
    layout: Option<Layout>,
    /// The figures of its segments and blocks.
    pub figures: Memory,
    /// What each stack holds.
    pub held: Sums<StackId>,
}

impl MemoryAt<'_, '_> {
    /// Its segments and blocks; `None` at the snapshot, where the file itself has them.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// Lists `top` of its segments.
    pub(crate) fn segments(&self, top: usize) -> SegmentList {
        let (snapshot, settings) = (self.device.snapshot(), self.device.settings());
        let pools = &snapshot.pools;
        match &self.layout {
            None => {
                let own = self.device.device().segments();
                list_segments(own, &snapshot.blocks, pools, settings, top)
            }
            Some(Layout { segments, blocks }) => {
                list_segments(segments.iter(), blocks, pools, settings, top)
            }
        }
    }
}

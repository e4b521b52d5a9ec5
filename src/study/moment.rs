//! Moments of a recording, and a device's memory at one.

use serde::Serialize;

use super::DeviceStudy;
use crate::facts::{Keep, Layout};

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

impl DeviceStudy<'_, '_> {
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

    /// Its memory at a `moment` of its trace, replayed literally; nothing for [`Moment::Snapshot`], which the
    /// file itself describes.
    pub fn layout(self, moment: Moment) -> Option<Layout> {
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

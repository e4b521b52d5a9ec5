//! One snapshot, replayed once, for any writer.

use std::io;
use std::ops::Range;

use crate::analysis::rank_in_path;
use crate::base::ids::to_u32;
use crate::replay::literal::Tracking;
use crate::study::lifetimes::{AllocationLifetime, EntryCount, MemoryLifetimes, SegmentRange, is_live};
use crate::study::{DeviceStudy, PositionSelector, Study, TracePosition};

/// The lifetime of every allocation of a snapshot, and its memory after every trace entry.
#[derive(Debug)]
pub struct Recording<'s, 'a> {
    /// The path that the snapshot was read from.
    pub path: &'s str,
    /// The rank in the job: as recorded, or else as the path names it.
    pub(super) rank: Option<u64>,
    pub(super) study: &'s Study<'a>,
    pub(super) devices: Vec<DeviceRecording<'s, 'a>>,
}

/// One device of a [`Recording`].
#[derive(Debug)]
pub(super) struct DeviceRecording<'s, 'a> {
    pub(super) device: DeviceStudy<'s, 'a>,
    /// The entries to export.
    pub(super) window: Range<usize>,
    pub(super) lives: MemoryLifetimes,
}

impl<'s, 'a> Recording<'s, 'a> {
    /// Replays the devices of `study`, whose snapshot was read from `path`.
    pub fn new(study: &'s Study<'a>, path: &'s str) -> Self {
        let rank = study.snapshot().recorder_info.as_ref().and_then(|info| info.rank.as_deref()?.parse().ok());
        let rank = rank.or_else(|| rank_in_path(path).map(u64::from));
        Self { path, rank, study, devices: study.devices().map(DeviceRecording::new).collect() }
    }

    /// Whether the window has no entry of any trace, although there are traces.
    pub fn is_outside_of_trace(&self) -> bool {
        let mut traced = self.devices.iter().filter(|device| !device.device.device().is_empty()).peekable();
        traced.peek().is_some() && traced.all(|device| device.window.is_empty())
    }
}

impl<'s, 'a> DeviceRecording<'s, 'a> {
    fn new(device: DeviceStudy<'s, 'a>) -> Self {
        Self { device, window: device.window(), lives: MemoryLifetimes::from_device(device) }
    }

    /// Calls `observe` with a number of applied entries, and the allocated and reserved bytes after these: for the start of
    /// the window and each of its entries. A replay of their own takes less time than they would take memory.
    pub(super) fn each_totals(&self, mut observe: impl FnMut(usize, [u64; 2]) -> io::Result<()>) -> io::Result<()> {
        let mut observed = Ok(());
        let traced = self.device.replay(Tracking::Totals, |step| {
            let (applied, now) = (step.at.map_or(0, |(index, _)| index + 1), step.tiling.totals());
            if (self.window.start..=self.window.end).contains(&applied) && observed.is_ok() {
                observed = observe(applied, [now.allocated, now.reserved]);
            }
        });
        let memory = self.device.memory();
        if traced.is_some() { observed } else { observe(0, [memory.allocated_bytes, memory.reserved_bytes]) }
    }

    /// The number of entries applied at the position of `selector`.
    pub(super) fn position(&self, selector: PositionSelector) -> Option<EntryCount> {
        if self.device.device().is_empty() {
            return matches!(selector, PositionSelector::Peak | PositionSelector::End).then_some(0);
        }
        match self.device.position(selector)? {
            TracePosition::Start => Some(0),
            TracePosition::Entry { event } => EntryCount::try_from(event + 1).ok(),
            TracePosition::Snapshot => EntryCount::try_from(self.device.device().len()).ok(),
        }
    }

    /// The number of entries applied when most was allocated within the window.
    pub(super) fn peak(&self) -> EntryCount {
        let event = self.device.peak().allocated_event;
        event.map_or_else(|| to_u32(self.window.start), |at| EntryCount::try_from(at + 1).unwrap_or(EntryCount::MAX))
    }

    /// The allocations that were live at some time within the window.
    pub(super) fn allocations(&self) -> impl Iterator<Item = &AllocationLifetime> {
        self.lives.allocations.iter().filter(|one| is_live(one.start, one.freed_at(), &self.window))
    }

    /// The segments that existed at some time within the window.
    pub(super) fn segments(&self) -> impl Iterator<Item = &SegmentRange> {
        self.lives.segments.iter().filter(|one| is_live(one.start, one.end, &self.window))
    }
}

/// The entry that a number of applied entries ends with; `None` before the first.
pub(super) fn last_entry(applied: EntryCount) -> Option<usize> {
    applied.checked_sub(1).map(|entry| entry as usize)
}

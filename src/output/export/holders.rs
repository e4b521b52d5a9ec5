//! Memory by the stack that allocated it.

use std::collections::BTreeMap;

use super::recording::{DeviceRecording, is_live};
use crate::base::ids::StackId;
use crate::study::attribution::Category;
use crate::study::lifetimes::{AllocationLifetime, EntryCount};

/// Allocations with equal keys are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HolderKey {
    pub(super) stack: StackId,
    /// Row of `MemoryLifetimes::places`.
    pub(super) place: u32,
    pub(super) category: Category,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

impl Held {
    pub(super) fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The live memory after `applied` entries.
pub(super) fn live_at(recording: &DeviceRecording<'_, '_>, applied: EntryCount) -> BTreeMap<HolderKey, Held> {
    sum_up(recording.lives.allocations.iter().filter(|one| is_live(one, applied)))
}

/// All that the entries of the window allocated.
pub(super) fn allocated_in_window(recording: &DeviceRecording<'_, '_>) -> BTreeMap<HolderKey, Held> {
    let window = &recording.window;
    let is_in = |one: &&AllocationLifetime| (window.start + 1..=window.end).contains(&(one.start as usize));
    sum_up(recording.lives.allocations.iter().filter(is_in))
}

fn sum_up<'l>(allocations: impl Iterator<Item = &'l AllocationLifetime>) -> BTreeMap<HolderKey, Held> {
    let mut sums: BTreeMap<HolderKey, Held> = BTreeMap::new();
    for one in allocations {
        let key = HolderKey { stack: one.made_by, place: one.place, category: one.category };
        sums.entry(key).or_default().add(Held { blocks: 1, bytes: one.bytes });
    }
    sums
}

//! Classifies every allocation of a recording, not only the blocks that are live at one position.
//!
//! The category of a block depends on other live blocks, so blocks are classified in sets. The live blocks of the last
//! failure and of the peak come first, and get the same categories as in [`super::attribute_memory`]. The trace is then
//! divided into ranges; each classifies the blocks that are live at its start, together with those allocated within.

use super::block_lives::BlockLives;
use super::classify::classify;
use super::live_set::{Allocation, LiveSet, TracePoint};
use crate::study::DeviceStudy;
use crate::study::category::{Category, Classification, Confidence};

/// Number of ranges that the trace is divided into, before failures divide them further.
const MAX_RANGES: usize = 32;
/// Maximum number of failures that divide a range.
const MAX_FAILURE_CUTS: usize = 64;

/// The category of each of `count` allocations of `device`, in the order in which they were made. `allocation` reads
/// one by its row.
pub fn classify_allocations(
    device: DeviceStudy<'_, '_>,
    count: usize,
    allocation: &dyn Fn(usize) -> Allocation,
) -> Vec<(Category, Confidence)> {
    let lifetimes = BlockLives::from_trace(device).with_live_sets(device, Vec::new());
    let trace = device.device();
    let mut classifier =
        AllocationClassifier { device, lifetimes: &lifetimes, allocation, classified: vec![None; count] };
    let peak = device.history().map(|history| history.peak_entry().and_then(|entry| usize::try_from(entry).ok()));
    for entry in device.failed_requests().next_back().map(Some).into_iter().chain(peak) {
        let rows = classifier.live_after(entry);
        classifier.classify_rows(entry, lifetimes.observed_until(entry), rows);
    }
    let stride = lifetimes.failed.len().div_ceil(MAX_FAILURE_CUTS).max(1);
    let mut cuts: Vec<usize> = (1..=MAX_RANGES).map(|n| trace.len() * n / MAX_RANGES).collect();
    cuts.extend(lifetimes.failed.iter().step_by(stride).map(|entry| entry + 1));
    cuts.sort_unstable();
    cuts.dedup();
    let (mut next, mut live) = (0, Vec::new());
    let mut start = 0;
    for end in cuts {
        // The blocks that are live at the start of the range, and those allocated within it.
        live.retain(|row: &usize| allocation(*row).freed_after.is_none_or(|freed| freed as usize > start));
        while next < count && allocation(next).allocated_at.is_none_or(|entry| (entry as usize) < end) {
            live.push(next);
            next += 1;
        }
        // No position: the category must not depend on where within the range a block is freed.
        classifier.classify_rows(None, lifetimes.observed_until(end.checked_sub(1)), live.clone());
        start = end;
    }
    let unknown = (Category::Other, Confidence::Low);
    classifier.classified.into_iter().map(|found| found.unwrap_or(unknown)).collect()
}

struct AllocationClassifier<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    lifetimes: &'a BlockLives<'a>,
    allocation: &'a dyn Fn(usize) -> Allocation,
    classified: Vec<Option<Classification>>,
}

impl AllocationClassifier<'_, '_> {
    /// Rows of the allocations that are live after `entry`.
    fn live_after(&self, entry: Option<usize>) -> Vec<usize> {
        let applied = entry.map_or(0, |entry| entry + 1);
        (0..self.classified.len())
            .filter(|row| {
                let allocation = (self.allocation)(*row);
                allocation.allocated_at.is_none_or(|entry| (entry as usize) < applied)
                    && allocation.freed_after.is_none_or(|freed| freed as usize > applied)
            })
            .collect()
    }

    /// Classifies the allocations in `rows` as live blocks after `entry`, with the frees up to `end`. Keeps earlier
    /// classifications.
    fn classify_rows(&mut self, entry: Option<usize>, end: usize, mut rows: Vec<usize>) {
        rows.sort_by_cached_key(|row| (self.allocation)(*row).address);
        let blocks = rows.iter().map(|row| self.lifetimes.live_block(self.device, &(self.allocation)(*row), end));
        let live_set = LiveSet {
            entry,
            point: entry.map_or(TracePoint::START, |entry| self.lifetimes.point(entry)),
            observed_until: self.lifetimes.point(end),
            blocks: blocks.collect(),
        };
        for (row, classification) in rows.iter().zip(classify(&live_set, self.lifetimes)) {
            self.classified[*row].get_or_insert(classification);
        }
    }
}

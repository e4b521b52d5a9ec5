//! Classifies every allocation of a recording, not only the blocks that are live at one position.
//!
//! The category of a block depends on other live blocks, so blocks are classified in sets. The live blocks of the last
//! failure and of the peak come first, and get the same categories as in [`super::attribute_memory`]. The trace is then
//! divided into ranges; each classifies the blocks that are live at its start, together with those allocated within.

use super::block_lives::BlockLives;
use super::classify::classify;
use super::live_set::{Allocation, LiveSet, TracePoint};
use crate::base::threads;
use crate::study::DeviceStudy;
use crate::study::category::{Category, Classification, Confidence};

/// Number of ranges that the trace is divided into, before failures divide them further.
const MAX_RANGES: usize = 32;
/// Maximum number of failures that divide a range.
const MAX_FAILURE_CUTS: usize = 64;

/// The category of each of `count` allocations of `device`, in the order in which they were made. `allocation` reads
/// one by its row. `lifetimes` must be the device's own, after a replay.
pub fn classify_allocations(
    device: DeviceStudy<'_, '_>,
    lifetimes: &BlockLives<'_>,
    count: usize,
    allocation: &(dyn Fn(usize) -> Allocation + Sync),
) -> Vec<(Category, Confidence)> {
    let trace = device.device();
    let classifier = AllocationClassifier { device, lifetimes, allocation };
    let mut classified = vec![None; count];
    let peak = device.history().map(|history| history.peak_entry().and_then(|entry| usize::try_from(entry).ok()));
    for entry in device.failed_requests().next_back().map(Some).into_iter().chain(peak) {
        let rows = classifier.live_after(entry, count);
        for (row, found) in classifier.classify_rows(entry, lifetimes.observed_until(entry), rows) {
            classified[row].get_or_insert(found);
        }
    }
    let stride = lifetimes.failed.len().div_ceil(MAX_FAILURE_CUTS).max(1);
    let mut cuts: Vec<usize> = (1..=MAX_RANGES).map(|n| trace.len() * n / MAX_RANGES).collect();
    cuts.extend(lifetimes.failed.iter().step_by(stride).map(|entry| entry + 1));
    cuts.sort_unstable();
    cuts.dedup();
    let (mut next, mut live) = (0, Vec::new());
    let mut start = 0;
    // As many ranges as there are cores, so that only their blocks are in memory.
    for ends in cuts.chunks(rayon::current_num_threads()) {
        let ranges = ends.iter().map(|end| {
            // The blocks that are live at the start of the range, and those allocated within it.
            live.retain(|row: &usize| allocation(*row).freed_after.is_none_or(|freed| freed as usize > start));
            while next < count && allocation(next).allocated_at.is_none_or(|entry| (entry as usize) < *end) {
                live.push(next);
                next += 1;
            }
            start = *end;
            (*end, live.clone())
        });
        let ranges: Vec<(usize, Vec<usize>)> = ranges.collect();
        // No position: the category must not depend on where within the range a block is freed.
        let found = threads::map(&ranges, |(end, rows)| {
            classifier.classify_rows(None, lifetimes.observed_until(end.checked_sub(1)), rows.clone())
        });
        for (row, found) in found.into_iter().flatten() {
            classified[row].get_or_insert(found);
        }
    }
    classified.into_iter().map(|found| found.unwrap_or((Category::Other, Confidence::Low))).collect()
}

struct AllocationClassifier<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    lifetimes: &'a BlockLives<'a>,
    allocation: &'a (dyn Fn(usize) -> Allocation + Sync),
}

impl AllocationClassifier<'_, '_> {
    /// Rows of those of the first `count` allocations that are live after `entry`.
    fn live_after(&self, entry: Option<usize>, count: usize) -> Vec<usize> {
        let applied = entry.map_or(0, |entry| entry + 1);
        let live = (0..count).filter(|row| {
            let allocation = (self.allocation)(*row);
            allocation.allocated_at.is_none_or(|entry| (entry as usize) < applied)
                && allocation.freed_after.is_none_or(|freed| freed as usize > applied)
        });
        live.collect()
    }

    /// Classifies the allocations in `rows` as live blocks after `entry`, with the frees up to `end`.
    fn classify_rows(
        &self,
        entry: Option<usize>,
        end: usize,
        mut rows: Vec<usize>,
    ) -> impl Iterator<Item = (usize, Classification)> + use<> {
        rows.sort_by_cached_key(|row| (self.allocation)(*row).address);
        let blocks = rows.iter().map(|row| self.lifetimes.live_block(self.device, &(self.allocation)(*row), end));
        let live_set = LiveSet {
            entry,
            point: entry.map_or(TracePoint::START, |entry| self.lifetimes.counts.point(entry)),
            observed_until: self.lifetimes.counts.point(end),
            blocks: blocks.collect(),
        };
        rows.into_iter().zip(classify(&live_set, self.lifetimes))
    }
}

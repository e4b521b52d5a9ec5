//! Classifies every allocation of a recording, not only the live blocks of allocation position.
//!
//! The category of a block depends on other live blocks, so blocks are classified in sets. The live blocks of the last
//! failure and of the peak come first, and get the same categories as in [`super::attribute_memory`]. The trace is then
//! divided into ranges; each classifies the blocks that are live at its start, together with those allocated within.

use super::block_lives::BlockLives;
use super::classify::classify;
use super::live_set::{LiveBlock, LiveSet, TracePoint};
use crate::base::ids::StackId;
use crate::snapshot::Action;
use crate::stacks::phases::StackTraits;
use crate::study::DeviceStudy;
use crate::study::category::{Category, Classification, Confidence};

/// Number of ranges that the trace is divided into, before failures divide them further.
const MAX_RANGES: usize = 32;
/// Maximum number of failures that divide a range.
const MAX_FAILURE_CUTS: usize = 64;

/// A block over its lifetime.
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// First address.
    pub address: u64,
    /// Rounded bytes.
    pub bytes: u64,
    /// Bytes before rounding.
    pub requested_bytes: u64,
    /// The allocating stack, with its caller and forward stack.
    pub extended_stack: StackId,
    /// Index of the allocating entry; `None` if the block is older than the trace.
    pub allocated_at: Option<u32>,
    /// Number of entries applied when it was freed; 0 is before the first entry.
    pub freed_after: Option<u32>,
}

/// The category of each of `count` allocations of `device`, which are sorted by allocation. They stay where they are:
/// `allocation` makes one from its row.
pub fn classify_allocations(
    device: DeviceStudy<'_, '_>,
    count: usize,
    allocation: &dyn Fn(usize) -> Allocation,
) -> Vec<(Category, Confidence)> {
    let lifetimes = BlockLives::from_trace(device, Vec::new());
    let trace = device.device();
    let mut classifier = AllocationClassifier {
        device,
        lifetimes: &lifetimes,
        failed: trace.failed_requests().collect(),
        last_alloc: trace.indexes_with_action(Action::Alloc).next_back(),
        allocation,
        classified: vec![None; count],
    };
    let peak = device.history().map(|history| history.peak_entry().and_then(|entry| usize::try_from(entry).ok()));
    for entry in device.failed_requests().next_back().map(Some).into_iter().chain(peak) {
        let rows = classifier.live_after(entry);
        classifier.classify_rows(entry, classifier.observed_until(entry), rows);
    }
    let stride = classifier.failed.len().div_ceil(MAX_FAILURE_CUTS).max(1);
    let mut cuts: Vec<usize> = (1..=MAX_RANGES).map(|n| trace.len() * n / MAX_RANGES).collect();
    cuts.extend(classifier.failed.iter().step_by(stride).map(|entry| entry + 1));
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
        // A range has no position: what is over by then is not what a block was for.
        classifier.classify_rows(None, classifier.observed_until(end.checked_sub(1)), live.clone());
        start = end;
    }
    let unknown = (Category::Other, Confidence::Low);
    classifier.classified.into_iter().map(|found| found.unwrap_or(unknown)).collect()
}

struct AllocationClassifier<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    lifetimes: &'a BlockLives<'a>,
    /// The entries of failed requests.
    failed: Vec<usize>,
    last_alloc: Option<usize>,
    allocation: &'a dyn Fn(usize) -> Allocation,
    classified: Vec<Option<Classification>>,
}

impl AllocationClassifier<'_, '_> {
    /// [`LiveSet::observed_until`] for the live blocks after `entry`.
    fn observed_until(&self, entry: Option<usize>) -> usize {
        let now = entry.unwrap_or(0); // the start of the trace
        let last = self.last_alloc.map_or(now, |last| last.max(now));
        let failed = self.failed.partition_point(|failed| *failed < now);
        self.failed.get(failed).map_or(last, |failed| last.min(*failed))
    }

    /// Rows of the allocations that are live after `entry`.
    fn live_after(&self, entry: Option<usize>) -> Vec<usize> {
        let applied = entry.map_or(0, |entry| entry + 1);
        let is_live = |row: &usize| {
            let allocation = (self.allocation)(*row);
            allocation.allocated_at.is_none_or(|entry| (entry as usize) < applied)
                && allocation.freed_after.is_none_or(|freed| freed as usize > applied)
        };
        (0..self.classified.len()).filter(is_live).collect()
    }

    /// Classifies the allocations in `rows` as live blocks after `entry`, with the frees up to `end`. Keeps earlier
    /// classifications.
    fn classify_rows(&mut self, entry: Option<usize>, end: usize, mut rows: Vec<usize>) {
        let phases = self.device.phases();
        let block = |row: usize| {
            let allocation = (self.allocation)(row);
            let freed = allocation.freed_after.and_then(|freed| freed.checked_sub(1));
            let freed = freed.filter(|freed| *freed as usize <= end);
            let freed_by = freed.and_then(|freed| self.device.device().stack(freed as usize));
            LiveBlock {
                address: allocation.address,
                bytes: allocation.bytes,
                requested_bytes: allocation.requested_bytes,
                stack: self.device.stacks().recorded_stack(allocation.extended_stack),
                extended_stack: allocation.extended_stack,
                allocated_at: allocation.allocated_at.map(|entry| self.lifetimes.point(entry as usize)),
                freed_at: freed.map(|entry| self.lifetimes.point(entry as usize)),
                freed_by: freed_by.map_or_else(StackTraits::default, |by| phases.stack_traits(by)),
            }
        };
        rows.sort_by_key(|row| (self.allocation)(*row).address);
        let live_set = LiveSet {
            entry,
            point: entry.map_or(TracePoint { entry: 0, run: 0 }, |entry| self.lifetimes.point(entry)),
            observed_until: Some(self.lifetimes.point(end)),
            blocks: rows.iter().map(|row| block(*row)).collect(),
        };
        for (row, classification) in rows.iter().zip(classify(&live_set, self.lifetimes)) {
            self.classified[*row].get_or_insert(classification);
        }
    }
}

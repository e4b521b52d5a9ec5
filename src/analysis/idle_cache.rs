//! Cached memory that the program has stopped using, or that the allocator released for its requests.

use serde::Serialize;

use crate::base::units::{GIB, ratio};
use crate::replay::ops::device_frees;
use crate::stacks::phases::{Phase, Phases};
use crate::study::memory::{MemoryReport, SizedCount};
use crate::study::{DeviceStudy, MemoryHistory, SERIES_ALLOCATED};

/// Less is no reason to change a program.
const MIN_BYTES: u64 = GIB;
/// Idle memory is this share of the reserved memory at least.
const MIN_RATIO: f64 = 0.2;
/// Idle memory was not used in the last of this number of equal parts of the recording.
const RECENT_PARTS: usize = 2;

/// Free memory in the cache that nothing used for half the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IdleCache {
    /// Bytes that `torch.cuda.empty_cache()` would release to other processes.
    pub bytes: u64,
    /// All reserved bytes.
    pub reserved_bytes: u64,
}

impl IdleCache {
    /// `None` if most of what is reserved is or was in use of late, or if that part of the recording has no whole step of
    /// a program that trains: each step needs its peak again.
    pub(super) fn from_history(history: &MemoryHistory, memory: &MemoryReport, phases: &Phases) -> Option<Self> {
        let buckets = history.samples.buckets();
        let recent = &buckets[buckets.len() - buckets.len() / RECENT_PARTS..];
        let start = history.first_entry + recent.first()?.first as u64;
        let ends = phases.steps.ends().iter().filter(|end| u64::from(**end) >= start).count();
        if ends < 2 && phases.runs().iter().any(|run| run.phase == Phase::Backward) {
            return None;
        }
        let used = recent.iter().map(|bucket| bucket.max[SERIES_ALLOCATED]).max()?;
        let reserved_bytes = memory.reserved_bytes;
        // Later work needs `used` again.
        let bytes = memory.fragmentation.releasable_bytes.min(reserved_bytes.saturating_sub(used));
        (bytes >= MIN_BYTES && ratio(bytes, reserved_bytes) >= MIN_RATIO).then_some(Self { bytes, reserved_bytes })
    }
}

/// The requests that found no room until the allocator had released cached memory, which waits for the GPU each time, and
/// the bytes released for them; `None` if there was none.
pub(super) fn cache_flushes(device: DeviceStudy<'_, '_>, history: &MemoryHistory) -> Option<SizedCount> {
    let window = device.window();
    let released = device_frees(device.device(), history.outcome.initial_totals.reserved);
    let for_requests = released.filter(|one| one.is_for_request && window.contains(&one.entry_index));
    let mut flushes = SizedCount::default();
    for_requests.for_each(|one| flushes.add(one.bytes));
    (flushes.count > 0).then_some(flushes)
}

//! What was recorded, whatever a what-if makes of it.

use std::collections::BTreeMap;

use crate::replay::calls::given_back;
use crate::snapshot::Action;
use crate::study::DeviceStudy;

/// Figures of the recorded run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordedRun {
    /// The most that was held from the device.
    pub(super) peak_reserved: u64,
    /// The most that the program held.
    pub(super) peak_allocated: u64,
    /// Calls that took memory from the device.
    pub(super) device_allocs: u64,
    /// Calls that gave memory back.
    pub(super) device_frees: u64,
    /// Requests for which memory was given back first, or that failed.
    pub(super) retries: u64,
    /// Requests that failed.
    pub(super) failed: u64,
}

impl RecordedRun {
    /// Of `device`: as the model reproduced it, else by its trace alone.
    pub(super) fn of(device: DeviceStudy<'_, '_>) -> Self {
        let verification = &device.inferred().verification;
        if !verification.is_exact() {
            return Self::by_trace(device);
        }
        let statistics = verification.allocator.statistics();
        Self {
            peak_reserved: statistics.reserved_bytes.all.peak,
            peak_allocated: statistics.allocated_bytes.all.peak,
            device_allocs: statistics.num_device_alloc,
            device_frees: statistics.num_device_free,
            retries: statistics.num_alloc_retries,
            failed: device.device().failed().count() as u64,
        }
    }

    fn by_trace(device: DeviceStudy<'_, '_>) -> Self {
        let (trace, peak) = (device.device(), device.peak());
        let count = |is_one: fn(Action) -> bool| trace.entries_where(is_one).count() as u64;
        let made_room = given_back(trace, device.reserved_before());
        let made_room = made_room.filter(|given| given.for_request);
        let served = made_room.filter(|given| trace.entry(given.event).action != Action::Oom);
        let failed = trace.failed().count() as u64;
        Self {
            peak_reserved: peak.reserved_bytes,
            // Segments that contradict themselves may hold more than they are large.
            peak_allocated: peak.allocated_bytes.min(peak.reserved_bytes),
            device_allocs: count(Action::is_growth),
            device_frees: count(Action::is_shrinking),
            retries: served.count() as u64 + failed,
            failed,
        }
    }

    /// The figures under the keys of `torch.cuda.memory_stats()`.
    pub(super) fn statistics(&self) -> BTreeMap<String, i64> {
        let figures = [
            ("allocated_bytes.all.peak", self.peak_allocated),
            ("num_alloc_retries", self.retries),
            ("num_device_alloc", self.device_allocs),
            ("num_device_free", self.device_frees),
            ("num_ooms", self.failed),
            ("reserved_bytes.all.peak", self.peak_reserved),
        ];
        let signed =
            |(key, value): (&str, u64)| (key.to_owned(), i64::try_from(value).unwrap_or(i64::MAX));
        figures.into_iter().map(signed).collect()
    }
}

//! Peaks and numbers of device calls of the recorded run.

use std::collections::BTreeMap;

use crate::allocator::RunFigures;
use crate::replay::ops::device_frees;
use crate::snapshot::Action;
use crate::study::DeviceStudy;

/// The figures of the model if it reproduces the recording, else those that the trace alone shows.
pub(super) fn recorded_figures(device: DeviceStudy<'_, '_>) -> RunFigures {
    let verification = &device.inferred().verification;
    if verification.is_exact() {
        return verification.allocator.statistics.run_figures();
    }
    let (trace, peak) = (device.device(), device.peak());
    let count = |is_counted: fn(Action) -> bool| trace.entries_where(is_counted).count() as u64;
    let for_requests = device_frees(trace, device.reserved_before());
    let made_room = for_requests.filter(|given| given.is_for_request);
    let served = made_room.filter(|given| trace.entry(given.entry_index).action != Action::Oom);
    RunFigures {
        peak_reserved_bytes: peak.reserved_bytes,
        // In a damaged snapshot the blocks of a segment may exceed its size.
        peak_allocated_bytes: peak.allocated_bytes.min(peak.reserved_bytes),
        device_allocs: count(Action::is_growth),
        device_frees: count(Action::is_shrink),
        // Requests for which cached blocks were released, or that failed.
        retries: (served.count() + trace.failed_requests().count()) as u64,
    }
}

/// The statistics under the keys of `torch.cuda.memory_stats()`, after `failed` requests.
pub(super) fn statistics(run: RunFigures, failed: usize) -> BTreeMap<String, i64> {
    let figures = [
        ("allocated_bytes.all.peak", run.peak_allocated_bytes),
        ("num_alloc_retries", run.retries),
        ("num_device_alloc", run.device_allocs),
        ("num_device_free", run.device_frees),
        ("num_ooms", failed as u64),
        ("reserved_bytes.all.peak", run.peak_reserved_bytes),
    ];
    let signed = |(key, value): (&str, u64)| (key.to_owned(), i64::try_from(value).unwrap_or(i64::MAX));
    figures.into_iter().map(signed).collect()
}

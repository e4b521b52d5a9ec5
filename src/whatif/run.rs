//! A run of a device's program, recorded or under other conditions: its outcome and its figures.

use std::collections::BTreeMap;

use super::forecast::Forecast;
use super::outcome::{JobOutcome, free_of, outlives_recording};
use super::overrides::{Overrides, hypothesis_with};
use super::smallest_capacity::first_impossible_request;
use crate::allocator::RunFigures;
use crate::replay::model::{EntrySink, Hypothesis, Simulation, simulate, simulate_with_headroom};
use crate::replay::ops::device_frees;
use crate::snapshot::Action;
use crate::study::DeviceStudy;

/// One replay of a device's trace with other settings, capacity or release.
pub(super) struct OverriddenRun {
    pub(super) hypothesis: Hypothesis,
    /// Includes a request that must fail wherever a replay places memory from before the recording.
    pub(super) simulation: Simulation,
}

impl OverriddenRun {
    /// `sink` receives every entry that the model writes.
    pub(super) fn new(device: DeviceStudy<'_, '_>, overrides: &Overrides, sink: Option<&mut EntrySink<'_>>) -> Self {
        let hypothesis = hypothesis_with(device, overrides);
        let mut simulation = simulate(device.program(), &hypothesis, sink);
        let impossible = overrides.capacity.and_then(|bytes| first_impossible_request(device, bytes, overrides));
        if let Some((entry, bytes)) = impossible
            && simulation.ooms.first().is_none_or(|(first, _)| *first > entry)
        {
            simulation.ooms.insert(0, (entry, bytes));
        }
        Self { hypothesis, simulation }
    }

    /// The outcome of the job under these conditions, and the peak of reserved bytes, up to the end of the forecast if the
    /// job goes on. `forecast` is that of the failed request that ended its recording.
    pub(super) fn fate(&self, device: DeviceStudy<'_, '_>, forecast: Option<&Forecast<'_>>) -> (JobOutcome, u64) {
        let peak_reserved = self.simulation.figures().peak_reserved_bytes;
        let free_bytes = free_of(&self.hypothesis, peak_reserved);
        let forecast = forecast.filter(|_| outlives_recording(device, &self.simulation.ooms));
        let Some(forecast) = forecast else {
            let then = JobOutcome::from_replay(device, &self.simulation.ooms, None, free_bytes);
            return (then, peak_reserved);
        };
        let entries = forecast.headroom_entries().into();
        let continued = simulate_with_headroom(&forecast.program, &self.hypothesis, &entries);
        let later = forecast.outcome(device, &continued);
        let then = JobOutcome::from_replay(device, &continued.ooms, Some(later), free_bytes);
        let peak_reserved = if then.goes_on() { continued.figures().peak_reserved_bytes } else { peak_reserved };
        (then, peak_reserved)
    }
}

/// The figures of the model if it reproduces the recording, else those that the trace alone shows.
pub(super) fn recorded_figures(device: DeviceStudy<'_, '_>) -> RunFigures {
    let verification = &device.inferred().verification;
    if verification.is_exact() {
        return verification.allocator.statistics.run_figures();
    }
    let (trace, peak) = (device.device(), device.peak());
    let made_room = device_frees(trace, device.reserved_before()).filter(|given| given.is_for_request);
    let served = made_room.filter(|given| trace.entry(given.entry_index).action != Action::Oom);
    RunFigures {
        peak_reserved_bytes: peak.reserved_bytes,
        // In a damaged snapshot the blocks of a segment may exceed its size.
        peak_allocated_bytes: peak.allocated_bytes.min(peak.reserved_bytes),
        device_allocs: trace.entries_where(Action::is_growth).count() as u64,
        device_frees: trace.entries_where(Action::is_shrink).count() as u64,
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
    figures.into_iter().map(|(key, value)| (key.to_owned(), i64::try_from(value).unwrap_or(i64::MAX))).collect()
}

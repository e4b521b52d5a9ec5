//! One replay of a device's trace with other settings, capacity or release.

use super::forecast::Forecast;
use super::outcome::{JobOutcome, free_at_peak, outlives_recording};
use super::overrides::{Overrides, hypothesis_with};
use super::smallest_capacity::first_impossible_request;
use crate::replay::model::{EntrySink, Hypothesis, Simulation, simulate, simulate_with_headroom};
use crate::study::DeviceStudy;

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
        let free_bytes = free_at_peak(&self.hypothesis, &self.simulation);
        let peak_reserved = self.simulation.figures().peak_reserved_bytes;
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

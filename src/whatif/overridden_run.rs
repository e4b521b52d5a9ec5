//! One replay of a device's trace with other settings, capacity or release.

use super::forecast::{Forecast, ForecastVerdict};
use super::overrides::{Overrides, hypothesis_with};
use super::smallest_capacity::first_impossible_request;
use crate::replay::model::{
    EntrySink, Hypothesis, Simulation, StateObserver, simulate, simulate_observed, simulate_with_headroom,
};
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
        let simulation = simulate(device.program(), &hypothesis, sink);
        Self { hypothesis, simulation }.with_impossible_request(device, overrides)
    }

    /// `observe` receives the state after every operation.
    pub(super) fn with_observer(
        device: DeviceStudy<'_, '_>,
        overrides: &Overrides,
        observe: &mut StateObserver<'_>,
    ) -> Self {
        let hypothesis = hypothesis_with(device, overrides);
        let simulation = simulate_observed(device.program(), &hypothesis, None, observe);
        Self { hypothesis, simulation }.with_impossible_request(device, overrides)
    }

    /// The fate of the program after the failed request that ended its recording, if this run serves it: whether a
    /// request fails up to the end of one more iteration, and more.
    pub(super) fn fate(
        &self,
        device: DeviceStudy<'_, '_>,
        forecast: &Forecast<'_>,
    ) -> (Option<bool>, Option<ForecastVerdict>) {
        if !self.simulation.ooms.is_empty() || self.simulation.avoided.is_empty() {
            return (None, None);
        }
        let entries = forecast.headroom_entries().into();
        let continued = simulate_with_headroom(&forecast.program, &self.hypothesis, &entries);
        (forecast.fails_soon(&continued), Some(forecast.verdict(device, &continued)))
    }

    fn with_impossible_request(mut self, device: DeviceStudy<'_, '_>, overrides: &Overrides) -> Self {
        let impossible = overrides.capacity.and_then(|bytes| first_impossible_request(device, bytes, overrides));
        self.simulation.add_failed_request(impossible);
        self
    }
}

//! Runs of a device's program on the model: under other conditions, on the smallest device, as a snapshot; and the figures
//! of the recorded run.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::forecast::Forecast;
use super::outcome::{JobOutcome, free_of, outlives_recording};
use super::overrides::{Overrides, hypothesis_on, hypothesis_with};
use crate::allocator::conf::Settings;
use crate::allocator::device::{Placement, UNBOUNDED};
use crate::allocator::{AllocatorEntry, CachingAllocator, RunFigures};
use crate::base::units::MIB;
use crate::replay::model::{
    EmittedDevice, EntrySink, Hypothesis, InferredDevice, Simulation, emit, peak_if_served, simulate,
    simulate_with_headroom, sufficient_capacity, verify,
};
use crate::replay::ops::device_frees;
use crate::snapshot::Action;
use crate::study::{DeviceStudy, Study};

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

/// The trace entries that the model wrote, each with the recorded time of its call.
pub type Journal = Vec<(AllocatorEntry, u64)>;

/// One device's trace, replayed by the model.
#[derive(Debug)]
pub struct ModelRun {
    /// Device index.
    pub device: u64,
    /// The trace that the model wrote.
    pub journal: Journal,
    /// The final state.
    pub allocator: CachingAllocator,
}

/// Replays every device under the inferred hypothesis, and keeps the entries that the model writes.
pub fn run_model(study: &Study<'_>) -> Vec<ModelRun> {
    let run = |inferred: &InferredDevice<'_>| {
        let mut journal = Journal::new();
        let mut push = |entry: &AllocatorEntry, time: u64| journal.push((*entry, time));
        let verification = verify(inferred.device, &inferred.hypothesis, Some(&mut push));
        ModelRun { device: inferred.device.id(), journal, allocator: verification.allocator }
    };
    study.inference().devices.iter().map(run).collect()
}

/// Writes `runs` as a snapshot with the settings and in the release of `overrides`, or as recorded where it has none.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_snapshot(
    study: &Study<'_>,
    overrides: &Overrides,
    runs: &[ModelRun],
    out: &mut dyn Write,
) -> io::Result<()> {
    let devices = runs.iter().map(|run| {
        let (segments, blocks) = run.allocator.view();
        EmittedDevice { device: run.device, entries: (&run.journal[..]).into(), texts: Vec::new(), segments, blocks }
    });
    let devices: Vec<EmittedDevice<'_>> = devices.collect();
    let settings = overrides.settings.as_ref().map(|(settings, string)| (string.as_str(), settings));
    let minor = overrides.minor.unwrap_or(*study.inference().releases.end());
    emit(study.snapshot(), minor, settings, &devices, out)
}

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

/// The smallest capacity is found to within this many bytes, or to within 1/[`CAPACITY_PARTS`] of itself if that is
/// more.
const CAPACITY_STEP: u64 = 2 * MIB;
const CAPACITY_PARTS: u64 = 256;

/// A lower bound of the capacity under `settings`: the live bytes at the peak, and the bytes reserved before the
/// recording, because nothing shows whether less would have been enough.
fn minimum_capacity(device: DeviceStudy<'_, '_>, settings: &Settings) -> u64 {
    device.program().peak_bytes(settings).max(device.reserved_before())
}

/// The first request that must fail on a device of `capacity` bytes, wherever a replay places memory from before the
/// recording: its entry index and bytes.
fn first_impossible_request(device: DeviceStudy<'_, '_>, capacity: u64, overrides: &Overrides) -> Option<(usize, u64)> {
    let settings = hypothesis_on(device, capacity, overrides).lenient_settings();
    let program = device.program();
    if minimum_capacity(device, &settings) <= capacity {
        return None;
    }
    let available = if device.reserved_before() > capacity { 0 } else { capacity };
    // Without any request, the memory from before the recording alone exceeds the device.
    program.first_request_over(available, &settings).or(Some((0, 0)))
}

fn round_up_to_step(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(CAPACITY_STEP).unwrap_or(bytes)
}

/// The smallest capacity on which no request fails, whether the driver places new memory above the old or below.
/// PyTorch chooses between equal blocks by address, so both matter near the limit. A real driver mostly places it below
/// (driver 580 on an H200: tests/gpu); the simulated device of all other replays, above. `known` is a capacity that was
/// already replayed, with the peak reserved there if no request failed.
///
/// The first guess comes from a replay on a device that grows whenever it runs out of memory. From there the search
/// goes up or down in growing strides until it has a lower and an upper bound, and then bisects.
pub(super) fn smallest_capacity(
    device: DeviceStudy<'_, '_>,
    overrides: &Overrides,
    known: (u64, Option<u64>),
) -> Option<u64> {
    let peak_with =
        |capacity, placement| peak_if_served(device.program(), &hypothesis_on(device, capacity, overrides), placement);
    let fits_on = |capacity| {
        let peak = peak_with(capacity, Placement::Lowest)?;
        peak_with(capacity, Placement::Highest).map(|other| peak.max(other))
    };
    let settings = hypothesis_on(device, UNBOUNDED, overrides).lenient_settings();
    let fraction = settings.per_process_memory_fraction;
    // The size of the device decides how many addresses an expandable segment reserves and how much memory a
    // fraction allows. If the run depends on neither, it is the same on a device of exactly its peak.
    let is_size_independent = !settings.expandable_segments && fraction >= 1.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let device_for = |bytes: u64| round_up_to_step((bytes as f64 / fraction).ceil() as u64).min(UNBOUNDED);
    let upper_bound = |capacity, peak| if is_size_independent { device_for(peak) } else { capacity };
    let precision = |bytes: u64| round_up_to_step(bytes / CAPACITY_PARTS).max(CAPACITY_STEP);

    // From here on all sizes are multiples of the step, so that every remaining interval has a middle.
    let minimum = device_for(minimum_capacity(device, &settings));
    let (mut low, mut high) = (minimum.saturating_sub(CAPACITY_STEP), UNBOUNDED);
    let (capacity, peak) = known;
    match peak.and_then(|peak| peak_with(capacity, Placement::Highest).map(|other| peak.max(other))) {
        Some(peak) => high = upper_bound(capacity, peak),
        None => low = low.max(capacity / CAPACITY_STEP * CAPACITY_STEP),
    }
    let result = |high: u64| (high < UNBOUNDED).then_some(high.max(minimum));
    if high.saturating_sub(low) <= precision(high) {
        return result(high);
    }
    let on_minimum = hypothesis_on(device, minimum, overrides);
    let is_limited = on_minimum.limit.is_some();
    let estimate = sufficient_capacity(device.program(), &Hypothesis { limit: None, ..on_minimum });
    if estimate == minimum && !is_limited && low < minimum && peak_with(minimum, Placement::Highest).is_some() {
        return Some(minimum);
    }
    let mut guess = device_for(estimate).max(low.saturating_add(CAPACITY_STEP));
    let (mut up, mut down) = (precision(low), precision(low));
    while high.saturating_sub(low) > precision(high) {
        let middle = low + (high - low) / 2;
        let is_guess = low < guess && guess < high;
        let next = if is_guess { guess } else { round_up_to_step(middle.max(high.saturating_sub(down))) };
        if let Some(peak) = fits_on(next) {
            down = if is_guess { precision(next) } else { down.saturating_mul(2) };
            (high, guess) = (upper_bound(next, peak), UNBOUNDED);
        } else {
            guess = if is_guess { next.saturating_add(up) } else { UNBOUNDED };
            (low, up, down) = (next, up.saturating_mul(2), UNBOUNDED);
        }
    }
    result(high)
}

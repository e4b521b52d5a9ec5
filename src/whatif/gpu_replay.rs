//! A replay on a real GPU: `oomscope/live/1`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use super::overrides::{Overrides, hypothesis_with};
use super::replay::{EntryReport, FailedRequest, entry_report, failed_request};
use crate::allocator::conf::Settings;
use crate::allocator::device::cuda::{CallTiming, CudaDevice, CudaError, DeviceCall, GpuReport, Refusal};
use crate::allocator::{AllocatorEntry, RunFigures};
use crate::base::units::{count, size};
use crate::base::warning::Warning;
use crate::replay::model::{EntrySink, Hypothesis, Simulation, simulate_on};
use crate::study::{DeviceStudy, Study};

/// The JSON of `oomscope live`.
#[derive(Debug, Serialize)]
pub struct LiveReport {
    /// `oomscope/live/1`
    pub schema: &'static str,
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// The settings of the replay, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; null if the release does not record
    /// them.
    pub settings_string: Option<String>,
    /// The PyTorch releases whose rules the replay followed.
    pub torch_version: String,
    /// Problems of the snapshot, and limits of the replay.
    pub warnings: Vec<Warning>,
    /// The GPU on which the trace was replayed.
    pub gpu: GpuReport,
    /// Whether all memory was written once after it was allocated.
    pub touched: bool,
    /// Every device of the snapshot with a trace, replayed one after the other.
    pub devices: Vec<LiveDevice>,
}

/// One device of the snapshot, replayed on the GPU.
#[derive(Debug, Serialize)]
pub struct LiveDevice {
    /// Device index in the snapshot.
    pub device: u64,
    /// State from which the replay starts: `empty`, or `reconstructed` if memory was reserved before the trace begins.
    pub start: &'static str,
    /// Number of trace entries.
    pub events: usize,
    /// Requests that failed.
    pub ooms: Vec<FailedRequest>,
    /// Peaks and numbers of device calls.
    #[serde(flatten)]
    pub figures: RunFigures,
    /// The largest drop of the driver's free memory below `free_bytes`, sampled after each allocation.
    pub driver_peak_bytes: u64,
    /// Whether every decision of the allocator was the same as on a simulated device of the same size.
    pub as_predicted: bool,
    /// The first decision that differs; null if none does.
    pub first_difference: Option<LiveDifference>,
    /// Durations of the driver calls.
    pub calls: CallReport,
}

/// The first difference between the GPU and the simulated device.
#[derive(Debug, Serialize)]
pub struct LiveDifference {
    /// Entry index of the call in the device's trace.
    pub event: usize,
    /// The entry that the allocator wrote on the simulated device; null if it wrote none.
    pub predicted: Option<EntryReport>,
    /// The entry that the allocator wrote on the GPU; null if it wrote none.
    pub live: Option<EntryReport>,
    /// Size of an allocation that the driver refused although enough memory should have been free; null if it refused
    /// none.
    pub refused_bytes: Option<u64>,
    /// Free memory that the driver reported at that refusal; null if it refused no allocation.
    pub driver_free_bytes: Option<u64>,
}

/// The successful driver calls, by kind. `map` and `unmap` count ranges, regardless of their granules.
#[derive(Debug, Default, Serialize)]
pub struct CallReport {
    /// `cudaMalloc`
    pub malloc: CallTimes,
    /// `cudaFree`
    pub free: CallTimes,
    /// Mapping memory into an expandable segment: creating and mapping all granules, and setting their access.
    pub map: CallTimes,
    /// Unmapping memory from an expandable segment.
    pub unmap: CallTimes,
}

/// Durations of the driver calls of one kind.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct CallTimes {
    /// Number of calls.
    pub count: u64,
    /// Total duration, in microseconds.
    pub total_us: u64,
    /// Median duration, in microseconds.
    pub median_us: u64,
    /// 99th percentile of the durations, in microseconds.
    pub p99_us: u64,
}

/// Why a replay on a GPU has no result.
#[derive(Debug, Error)]
pub enum LiveError {
    #[error("GPU {gpu}: {error}; nothing stays allocated")]
    Driver { gpu: u32, error: CudaError },
    /// The memory reserved before the recording does not fit on the GPU.
    #[error(
        "GPU {device}: {} was reserved when the recording began, more than the {} available on \
         GPU {gpu}",
        size(*.reserved_before), size(*.within_reach)
    )]
    StartTooLarge { device: u64, reserved_before: u64, within_reach: u64, gpu: u32 },
    #[error("stopped at entry {} of GPU {device}; nothing stays allocated", count(*.event as u64))]
    Stopped { device: u64, event: usize },
}

/// Replays the trace of every device on `gpu`, one after the other, under `settings` in place of the recorded ones.
/// Once `stop` is set, the replay ends before its next call.
pub fn replay_on_gpu(
    study: &Study<'_>,
    path: &str,
    gpu: &mut CudaDevice,
    settings: Option<(Settings, String)>,
    stop: &AtomicBool,
) -> Result<LiveReport, LiveError> {
    let verified = super::replay::verify_study(study, path);
    let mut devices = Vec::new();
    for device in study.devices().filter(|device| !device.device().is_empty()) {
        let overrides =
            Overrides { settings: settings.clone(), capacity: Some(gpu.info().total_bytes), ..Overrides::default() };
        let hypothesis = hypothesis_with(device, &overrides);
        devices.push(replay_device(device, &hypothesis, gpu, stop)?);
    }
    let settings_string = settings.map(|(_, string)| string);
    Ok(LiveReport {
        schema: "oomscope/live/1",
        path: path.to_owned(),
        settings_string: settings_string.or(verified.settings_string),
        torch_version: verified.torch_version,
        warnings: verified.warnings,
        gpu: gpu.info().clone(),
        touched: gpu.touches_memory(),
        devices,
    })
}

fn replay_device(
    device: DeviceStudy<'_, '_>,
    hypothesis: &Hypothesis,
    gpu: &mut CudaDevice,
    stop: &AtomicBool,
) -> Result<LiveDevice, LiveError> {
    // The entries that the allocator writes on a simulated device of the same size.
    let mut predicted = Vec::new();
    let simulated = gpu.to_simulated(device.id());
    let sink: &mut EntrySink<'_> = &mut |entry, _| predicted.push(*entry);
    simulate_on(device.program(), hypothesis, simulated, |_, _| true, Some(sink));
    let (simulation, difference) = run(device, hypothesis, gpu, stop, &predicted)?;
    let (calls, driver_peak_bytes) = (call_report(&gpu.run().timings), gpu.peak_used());
    gpu.release_all().map_err(|error| driver_error(gpu, error))?;
    Ok(LiveDevice {
        device: device.id(),
        start: if device.inferred().verification.starts_empty { "empty" } else { "reconstructed" },
        events: device.inferred().verification.recorded,
        ooms: simulation.ooms.iter().map(failed_request).collect(),
        figures: simulation.figures(),
        driver_peak_bytes,
        as_predicted: difference.is_none(),
        first_difference: difference,
        calls,
    })
}

/// Replays `device` on `gpu`, and compares the entries that the allocator writes with those `predicted`.
fn run(
    device: DeviceStudy<'_, '_>,
    hypothesis: &Hypothesis,
    gpu: &mut CudaDevice,
    stop: &AtomicBool,
    predicted: &[AllocatorEntry],
) -> Result<(Simulation, Option<LiveDifference>), LiveError> {
    gpu.reset(device.id()).map_err(|error| driver_error(gpu, error))?;
    let current_entry = Cell::new(0);
    let (mut refused_at, mut is_stopped) = (None, false);
    let mut expected = predicted.iter();
    let mut difference = None;
    let simulation = simulate_on(
        device.program(),
        hypothesis,
        &mut *gpu,
        |gpu, event| {
            if gpu.run().refusal.is_some() {
                refused_at.get_or_insert(current_entry.get());
            }
            current_entry.set(event);
            is_stopped = stop.load(Ordering::Relaxed);
            !is_stopped && !gpu.is_broken()
        },
        Some(&mut |entry: &AllocatorEntry, _: u64| {
            if difference.is_none() {
                let expected = expected.next();
                if expected != Some(entry) {
                    difference = Some((current_entry.get(), expected.copied(), Some(*entry)));
                }
            }
        }),
    );
    let (device, reserved_before) = (device.id(), device.reserved_before());
    if let Some(error) = &gpu.run().fault {
        return Err(driver_error(gpu, error.clone()));
    }
    if gpu.run().missing_bytes > 0 {
        let GpuReport { within_reach_bytes: within_reach, gpu, .. } = *gpu.info();
        return Err(LiveError::StartTooLarge { device, reserved_before, within_reach, gpu });
    }
    if is_stopped {
        return Err(LiveError::Stopped { device, event: current_entry.get() });
    }
    let refused = gpu.run().refusal;
    let difference = difference
        .or_else(|| expected.next().map(|entry| (current_entry.get(), Some(*entry), None)))
        .or_else(|| refused.map(|_| (refused_at.unwrap_or(current_entry.get()), None, None)));
    let difference = difference.map(|(event, predicted, live)| LiveDifference {
        event,
        predicted: predicted.map(entry_report),
        live: live.map(entry_report),
        refused_bytes: refused.map(|Refusal { size, .. }| size),
        driver_free_bytes: refused.map(|Refusal { driver_free, .. }| driver_free),
    });
    Ok((simulation, difference))
}

fn driver_error(gpu: &CudaDevice, error: CudaError) -> LiveError {
    LiveError::Driver { gpu: gpu.info().gpu, error }
}

fn call_report(timings: &[CallTiming]) -> CallReport {
    let calls = [DeviceCall::Malloc, DeviceCall::Free, DeviceCall::Map, DeviceCall::Unmap];
    let [malloc, free, map, unmap] = calls.map(|call| {
        let durations = timings.iter().filter(|timing| timing.call == call).map(|timing| timing.duration);
        let mut took: Vec<Duration> = durations.collect();
        took.sort_unstable();
        let [median_us, p99_us] = [50, 99].map(|percent| micros(percentile(&took, percent)));
        CallTimes { count: took.len() as u64, total_us: micros(took.iter().sum()), median_us, p99_us }
    });
    CallReport { malloc, free, map, unmap }
}

/// The `percent`th percentile of `sorted` by nearest rank; zero if it is empty.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default() // no such call was made
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_hundred() {
        let hundred: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(percentile(&hundred, 50), Duration::from_micros(50));
        assert_eq!(percentile(&hundred, 99), Duration::from_micros(99));
        assert_eq!(percentile(&hundred[..1], 99), Duration::from_micros(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}

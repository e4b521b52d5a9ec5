//! A replay on a real GPU: `oomscope/live/1`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use super::answer::{EntryReport, FailedRequest};
use super::change::{WhatIf, changed};
use super::replay::{entry_report, failed};
use crate::allocator::Entry;
use crate::allocator::conf::Settings;
use crate::allocator::device::cuda::{Cuda, CudaError, DeviceCall, GpuFacts, Refusal, Timing};
use crate::base::units::{count, size};
use crate::base::warning::Warning;
use crate::replay::model::{Hypothesis, Simulation, simulate_on};
use crate::snapshot::Device;
use crate::study::{DeviceStudy, Study};

/// How often a replay that waits looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// The JSON of `oomscope live`.
#[derive(Debug, Serialize)]
pub struct LiveReport {
    /// `oomscope/live/1`
    pub schema: &'static str,
    /// As given.
    pub path: String,
    /// The settings replayed under, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; `None` where the
    /// release does not record them.
    pub settings_string: Option<String>,
    /// The releases whose rules were followed.
    pub torch_version: String,
    /// What was odd about the file.
    pub warnings: Vec<Warning>,
    /// Which GPU.
    pub gpu: GpuReport,
    /// `recorded` or `full`.
    pub pace: &'static str,
    /// Whether all memory was written once when it was taken.
    pub touched: bool,
    /// Every device of the snapshot that has a trace, one after the other.
    pub devices: Vec<LiveDevice>,
}

/// The GPU replayed on.
#[derive(Debug, Serialize)]
pub struct GpuReport {
    /// As the driver counts.
    pub gpu: u32,
    /// What the maker calls it.
    pub name: String,
    /// The newest CUDA that the driver serves, such as `12.8`.
    pub cuda_version: String,
    /// All of its memory.
    pub total_bytes: u64,
    /// What was free before the replay.
    pub free_bytes: u64,
    /// What was left alone.
    pub kept_free_bytes: u64,
    /// What the replay could have: free, less what was left alone.
    pub within_reach_bytes: u64,
}

/// One device of the snapshot, replayed.
#[derive(Debug, Serialize)]
pub struct LiveDevice {
    /// Its number in the snapshot.
    pub device: u64,
    /// `empty` or `reconstructed`.
    pub start: &'static str,
    /// Entries of the trace.
    pub events: usize,
    /// How often it was replayed. The figures are those of the last time, the times those of all.
    pub runs: u32,
    /// Requests that failed.
    pub ooms: Vec<FailedRequest>,
    /// The most that was held from the GPU, by the allocator's count.
    pub peak_reserved_bytes: u64,
    /// The most that the program held.
    pub peak_allocated_bytes: u64,
    /// The most by which the driver's count of free memory fell, looked at whenever memory was taken.
    pub driver_peak_bytes: u64,
    /// Calls that took memory from the GPU.
    pub device_allocs: u64,
    /// Calls that gave memory back.
    pub device_frees: u64,
    /// Requests for which everything free was given back first.
    pub retries: u64,
    /// Whether the allocator decided everything as on a simulated device of the same size.
    pub as_predicted: bool,
    /// Where not.
    pub first_difference: Option<LiveDifference>,
    /// How long the driver took.
    pub calls: CallReport,
}

/// Where the GPU and the simulated device part.
#[derive(Debug, Serialize)]
pub struct LiveDifference {
    /// In which run, from 1.
    pub run: u32,
    /// Index of the entry in the device's trace whose call came out differently.
    pub event: usize,
    /// What the allocator did on the simulated device.
    pub predicted: Option<EntryReport>,
    /// What it did on the GPU.
    pub live: Option<EntryReport>,
    /// What the driver refused though there was room by the count of what was taken.
    pub refused_bytes: Option<u64>,
    /// What the driver then counted as free.
    pub driver_free_bytes: Option<u64>,
}

/// The calls to the driver by kind; those that went well.
#[derive(Debug, Default, Serialize)]
pub struct CallReport {
    /// `cudaMalloc`
    pub malloc: CallTimes,
    /// `cudaFree`
    pub free: CallTimes,
    /// Memory put behind a part of an expandable segment: creating, mapping and opening all its granules.
    pub map: CallTimes,
    /// Memory taken away from there.
    pub unmap: CallTimes,
}

/// Calls of one kind.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct CallTimes {
    /// How many.
    pub count: u64,
    /// All together.
    pub total_us: u64,
    /// Half of them took no longer.
    pub median_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
}

/// How to replay.
#[derive(Debug)]
pub struct LiveOptions<'a> {
    /// The settings, and the string they come from, instead of the recorded ones.
    pub settings: Option<(Settings, String)>,
    /// How often.
    pub runs: u32,
    /// Whether calls are made when they were recorded, not as fast as possible.
    pub recorded_pace: bool,
    /// Set from outside to end the replay before its next call.
    pub stop: &'a AtomicBool,
}

/// Why a replay on a GPU came to no result.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The driver failed.
    #[error("GPU {gpu}: {error}; nothing stays allocated")]
    Driver {
        /// As the driver counts.
        gpu: u32,
        /// What failed.
        error: CudaError,
    },
    /// What was held before the recording does not fit.
    #[error(
        "device {device}: {} was held when the recording began, more than the {} within reach on \
         GPU {gpu}",
        size(*.held), size(*.within_reach)
    )]
    Start {
        /// In the snapshot.
        device: u64,
        /// Bytes.
        held: u64,
        /// Bytes.
        within_reach: u64,
        /// As the driver counts.
        gpu: u32,
    },
    /// There is too little to measure with.
    #[error(
        "only {} is within reach on GPU {gpu}: too little to measure anything", size(*.within_reach)
    )]
    NoRoom {
        /// As the driver counts.
        gpu: u32,
        /// Bytes.
        within_reach: u64,
    },
    /// The measurement was told to stop.
    #[error("stopped before everything was measured; nothing stays allocated")]
    StoppedMeasuring,
    /// The replay was told to stop.
    #[error("stopped at entry {} of device {device}; nothing stays allocated", count(*.event as u64))]
    Stopped {
        /// In the snapshot.
        device: u64,
        /// Index in its trace.
        event: usize,
    },
}

/// Replays the trace of every device on `gpu`, one after the other.
pub fn live(
    study: &Study<'_>,
    path: &str,
    gpu: &mut Cuda,
    options: &LiveOptions<'_>,
) -> Result<LiveReport, LiveError> {
    let verified = super::replay::verified(study, path);
    let mut devices = Vec::new();
    for device in study.devices().filter(|device| !device.device().is_empty()) {
        let change = WhatIf {
            settings: options.settings.clone(),
            capacity: Some(gpu.facts().total),
            minor: None,
        };
        let hypothesis = changed(device, &change);
        let mut replay = DeviceReplay { device, hypothesis: &hypothesis, gpu, options };
        devices.push(replay.device()?);
    }
    let string = options.settings.as_ref().map(|(_, string)| string.clone());
    Ok(LiveReport {
        schema: "oomscope/live/1",
        path: path.to_owned(),
        settings_string: string.or(verified.settings_string),
        torch_version: verified.torch_version,
        warnings: verified.warnings,
        gpu: gpu_report(gpu.facts()),
        pace: if options.recorded_pace { "recorded" } else { "full" },
        touched: gpu.touches(),
        devices,
    })
}

/// One device, and how it is replayed.
struct DeviceReplay<'a, 's> {
    device: DeviceStudy<'a, 's>,
    hypothesis: &'a Hypothesis,
    gpu: &'a mut Cuda,
    options: &'a LiveOptions<'a>,
}

/// What came of one run.
struct LiveRun {
    simulation: Simulation,
    difference: Option<LiveDifference>,
}

impl DeviceReplay<'_, '_> {
    fn device(&mut self) -> Result<LiveDevice, LiveError> {
        let predicted = self.predicted();
        let mut timings = Vec::new();
        let mut driver_peak_bytes = 0;
        let mut number = 1;
        let last = loop {
            let run = self.run(number, &predicted)?;
            timings.extend_from_slice(self.gpu.timings());
            driver_peak_bytes = self.gpu.peak_taken().max(driver_peak_bytes);
            if number >= self.options.runs || run.difference.is_some() {
                break run;
            }
            number += 1;
        };
        let gpu = self.gpu.facts().gpu;
        let given_back = self.gpu.give_everything_back();
        given_back.map_err(|error| LiveError::Driver { gpu, error })?;
        let LiveRun { simulation, difference } = last;
        let statistics = simulation.allocator.statistics();
        Ok(LiveDevice {
            device: self.device.id(),
            start: if self.device.inferred().verification.starts_empty {
                "empty"
            } else {
                "reconstructed"
            },
            events: self.device.inferred().verification.recorded,
            runs: number,
            ooms: simulation.ooms.iter().map(failed).collect(),
            peak_reserved_bytes: statistics.reserved_bytes.all.peak,
            peak_allocated_bytes: statistics.allocated_bytes.all.peak,
            driver_peak_bytes,
            device_allocs: statistics.num_device_alloc,
            device_frees: statistics.num_device_free,
            retries: statistics.num_alloc_retries,
            as_predicted: difference.is_none(),
            first_difference: difference,
            calls: call_report(&timings),
        })
    }

    /// What the allocator does on a simulated device of the same size.
    fn predicted(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut keep = |entry: &Entry, _: u64| entries.push(*entry);
        let memory = self.gpu.simulated(self.device.id());
        simulate_on(self.device.program(), self.hypothesis, memory, |_, _| true, Some(&mut keep));
        entries
    }

    fn run(&mut self, number: u32, predicted: &[Entry]) -> Result<LiveRun, LiveError> {
        let Self { device, hypothesis, options, .. } = *self;
        let gpu = &mut *self.gpu;
        let driver =
            |gpu: &Cuda, error: CudaError| LiveError::Driver { gpu: gpu.facts().gpu, error };
        gpu.start_over(device.id()).map_err(|error| driver(gpu, error))?;
        let pace = options.recorded_pace.then(|| Pace::of(device.device()));
        let at = Cell::new(0);
        let (mut refused_at, mut is_stopped) = (None, false);
        let mut expected = predicted.iter();
        let mut parted = None;
        let mut compare = |entry: &Entry, _: u64| {
            if parted.is_none() {
                let expected = expected.next();
                if expected != Some(entry) {
                    parted = Some((at.get(), expected.copied(), Some(*entry)));
                }
            }
        };
        let simulation = simulate_on(
            self.device.program(),
            hypothesis,
            &mut *gpu,
            |gpu, event| {
                if gpu.refusal().is_some() {
                    refused_at.get_or_insert(at.get());
                }
                at.set(event);
                is_stopped = pace.as_ref().is_some_and(|pace| !pace.wait(event, options.stop))
                    || options.stop.load(Ordering::Relaxed);
                !is_stopped && !gpu.is_broken()
            },
            Some(&mut compare),
        );
        let (device, held) = (device.id(), device.reserved_before());
        if let Some(error) = gpu.fault() {
            return Err(driver(gpu, error.clone()));
        }
        let lacking = gpu.lacking();
        if lacking > 0 {
            let GpuFacts { within_reach, gpu, .. } = *gpu.facts();
            return Err(LiveError::Start { device, held, within_reach, gpu });
        }
        if is_stopped {
            return Err(LiveError::Stopped { device, event: at.get() });
        }
        let missing = |entry: &Entry| (at.get(), Some(*entry), None);
        let parted = parted.or_else(|| expected.next().map(missing));
        let refused = gpu.refusal();
        let parted =
            parted.or_else(|| refused.map(|_| (refused_at.unwrap_or(at.get()), None, None)));
        let difference = parted.map(|(event, predicted, live)| LiveDifference {
            run: number,
            event,
            predicted: predicted.map(entry_report),
            live: live.map(entry_report),
            refused_bytes: refused.map(|Refusal { size, .. }| size),
            driver_free_bytes: refused.map(|Refusal { driver_free, .. }| driver_free),
        });
        Ok(LiveRun { simulation, difference })
    }
}

/// Calls at the times at which they were recorded.
struct Pace<'a> {
    device: Device<'a>,
    /// The recorded time of the first entry.
    from_us: u64,
    started: Instant,
}

impl<'a> Pace<'a> {
    fn of(device: Device<'a>) -> Self {
        let from_us = device.time_us(0).unwrap_or(0);
        Self { device, from_us, started: Instant::now() }
    }

    /// Waits until it is time for the call that ends at entry `event`; false when told to stop before.
    fn wait(&self, event: usize, stop: &AtomicBool) -> bool {
        let time_us = self.device.time_us(event).unwrap_or(0);
        let due = Duration::from_micros(time_us.saturating_sub(self.from_us));
        loop {
            let left = due.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                return true;
            }
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(left.min(PATIENCE));
        }
    }
}

pub(super) fn gpu_report(facts: &GpuFacts) -> GpuReport {
    let (major, minor) = facts.cuda_version;
    GpuReport {
        gpu: facts.gpu,
        name: facts.name.clone(),
        cuda_version: format!("{major}.{minor}"),
        total_bytes: facts.total,
        free_bytes: facts.free,
        kept_free_bytes: facts.kept_free,
        within_reach_bytes: facts.within_reach,
    }
}

fn call_report(timings: &[Timing]) -> CallReport {
    let of = |call: DeviceCall| {
        let took = timings.iter().filter(|timing| timing.call == call).map(|timing| timing.took);
        let mut took: Vec<Duration> = took.collect();
        took.sort_unstable();
        CallTimes {
            count: took.len() as u64,
            total_us: micros(took.iter().sum()),
            median_us: micros(part(&took, 50)),
            p99_us: micros(part(&took, 99)),
        }
    };
    CallReport {
        malloc: of(DeviceCall::Malloc),
        free: of(DeviceCall::Free),
        map: of(DeviceCall::Map),
        unmap: of(DeviceCall::Unmap),
    }
}

/// The shortest of `sorted` that `percent` of 100 do not exceed; nothing of nothing.
pub(super) fn part(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_hundred() {
        let hundred: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(part(&hundred, 50), Duration::from_micros(50));
        assert_eq!(part(&hundred, 99), Duration::from_micros(99));
        assert_eq!(part(&hundred[..1], 99), Duration::from_micros(1));
        assert_eq!(part(&[], 50), Duration::ZERO);
    }
}

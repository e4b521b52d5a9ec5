//! The JSON of `oomscope plan --together`.

use rayon::prelude::*;
use serde::Serialize;

use super::timed_run::TimedRun;
use crate::allocator::device::{GpuModel, UNBOUNDED};
use crate::base::warning::{Code, Warning, Warnings, words};
use crate::replay::model::{Hypothesis, peak_if_served};
use crate::replay::ops::reserved_after;
use crate::study::{DeviceStudy, Study};
use crate::whatif::smallest_capacity::{hypothesis_on, smallest_capacity};
use crate::whatif::{Overrides, divergence_warning, single_entry_warning};

/// A fraction of the device is given in steps of one over this, as people type it.
const FRACTION_STEPS: f64 = 1000.0;

/// The recording of one process.
#[derive(Debug, Clone, Copy)]
pub struct TogetherInput<'s, 'a> {
    /// Its file.
    pub path: &'s str,
    /// Its devices with a trace; the one with the highest peak counts.
    pub study: &'s Study<'a>,
}

words! {
    /// The clocks of the recordings.
    pub enum Clocks {
        /// All processes were recorded at the same time, at least for a while
        Overlap = "overlap",
        /// They were recorded one after the other
        Apart = "apart",
        /// A recording has no times (PyTorch before 2.2)
        Missing = "missing",
    }
}

/// The JSON of `oomscope plan --together`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct TogetherReport {
    /// The processes, in the order of the command line.
    pub processes: Vec<TogetherProcess>,
    /// Sum of their `peak_reserved_bytes`.
    pub sum_of_peaks_bytes: u64,
    /// Sum of their `smallest_bytes`; null if one of them is.
    pub sum_of_smallest_bytes: Option<u64>,
    /// Whether the recordings show how the processes are timed.
    pub clocks: Clocks,
    /// Microseconds during which all of them were recorded; null unless `clocks` is `overlap`.
    pub overlap_us: Option<u64>,
    /// Microseconds from the first entry of any of them to the last; null if `clocks` is `missing`.
    pub span_us: Option<u64>,
    /// The GPUs, that with the least memory first.
    pub gpus: Vec<TogetherGpu>,
    /// Limits of the recordings.
    pub warnings: Vec<Warning>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TogetherProcess {
    /// The recording.
    pub path: String,
    /// Index of the device.
    pub device: u64,
    /// Peak of reserved bytes if no other process uses the device.
    pub peak_reserved_bytes: u64,
    /// The smallest device on which every request is served; null if none was found.
    pub smallest_bytes: Option<u64>,
    /// Memory of the device that was in use outside this process's allocator when its last request failed: CUDA
    /// contexts, libraries and other processes. Null if no request failed, if the recording lacks the size of the
    /// device, and for a dry run.
    pub outside_bytes: Option<u64>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TogetherGpu {
    /// Its name on the command line.
    pub gpu: &'static str,
    /// Its name in the driver.
    pub product: &'static str,
    /// Its memory in bytes, without one CUDA context for each process.
    pub usable_bytes: u64,
    /// Whether the processes fit whatever their timing: the peaks add up to at most `usable_bytes`.
    pub fits_at_any_time: bool,
    /// One replay of all processes as they were timed; null unless `clocks` is `overlap`.
    pub as_timed: Option<TimedRun>,
    /// Fractions for `torch.cuda.set_per_process_memory_fraction` under which every request of each process is served
    /// whatever their timing, in the order of `processes`; null if `fits_at_any_time`, or if there are none.
    pub fractions: Option<Vec<f64>>,
}

/// Whether the recorded processes fit together on each of `gpus`.
///
/// # Errors
/// One sentence: fewer than two recordings, or one without a trace.
pub fn fit_together(inputs: &[TogetherInput<'_, '_>], gpus: &[&'static GpuModel]) -> Result<TogetherReport, String> {
    if inputs.len() < 2 {
        return Err("--together: give the recordings of two processes or more".to_owned());
    }
    let mut warnings = Warnings::default();
    let measured: Vec<_> = inputs.par_iter().map(|input| measure(*input)).collect::<Result<_, _>>()?;
    for (input, (device, _)) in inputs.iter().zip(&measured) {
        warn(input.path, *device, &mut warnings);
    }
    let (devices, processes): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
    let sum_of_peaks_bytes = sum(processes.iter().map(|process| process.peak_reserved_bytes));
    let smallest: Option<Vec<u64>> = processes.iter().map(|process| process.smallest_bytes).collect();
    let (clocks, overlap_us, span_us) = clocks(&devices);
    let mut gpus = gpus.to_vec();
    gpus.sort_by_key(|gpu| (gpu.usable_bytes(), gpu.name));
    let rows = gpus.par_iter().map(|gpu| {
        let contexts = (gpu.total_bytes() - gpu.usable_bytes()).saturating_mul(devices.len() as u64);
        let usable_bytes = gpu.total_bytes().saturating_sub(contexts);
        let on_gpu = |device: &DeviceStudy<'_, '_>| hypothesis_on(*device, gpu.total_bytes(), &Overrides::default());
        let hypotheses: Vec<Hypothesis> = devices.iter().map(on_gpu).collect();
        let fits_at_any_time = sum_of_peaks_bytes <= usable_bytes;
        let find_fractions =
            |smallest: &Vec<u64>| fractions(&devices, &hypotheses, smallest, (gpu.total_bytes(), usable_bytes));
        TogetherGpu {
            gpu: gpu.name,
            product: gpu.product,
            usable_bytes,
            fits_at_any_time,
            as_timed: (clocks == Clocks::Overlap).then(|| TimedRun::new(&devices, &hypotheses, usable_bytes)),
            fractions: smallest.as_ref().filter(|_| !fits_at_any_time).and_then(find_fractions),
        }
    });
    let gpus = rows.collect();
    Ok(TogetherReport {
        sum_of_peaks_bytes,
        sum_of_smallest_bytes: smallest.map(|smallest| sum(smallest.into_iter())),
        clocks,
        overlap_us,
        span_us,
        gpus,
        warnings: warnings.to_vec(),
        processes,
    })
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// The device of `input` with the highest peak, and its memory on a device of its own.
fn measure<'s, 'a>(input: TogetherInput<'s, 'a>) -> Result<(DeviceStudy<'s, 'a>, TogetherProcess), String> {
    let alone = |device: DeviceStudy<'s, 'a>| {
        let hypothesis = Hypothesis { limit: None, ..hypothesis_on(device, UNBOUNDED, &Overrides::default()) };
        (peak_if_served(device.program(), &hypothesis).unwrap_or(UNBOUNDED), device)
    };
    let traced = input.study.devices().filter(|device| !device.device().is_empty());
    let highest = traced.map(alone).max_by_key(|(peak, device)| (*peak, std::cmp::Reverse(device.id())));
    let (peak, device) = highest.ok_or_else(|| format!("{}: no trace to replay", input.path))?;
    let process = TogetherProcess {
        path: input.path.to_owned(),
        device: device.id(),
        peak_reserved_bytes: peak,
        smallest_bytes: smallest_capacity(device, &Overrides::default(), (UNBOUNDED, Some(peak))),
        outside_bytes: outside_bytes(device),
    };
    Ok((device, process))
}

/// The memory in use outside the allocator of `device` at its last failed request.
fn outside_bytes(device: DeviceStudy<'_, '_>) -> Option<u64> {
    let trace = device.device();
    let failed = trace.failed_requests().next_back().filter(|_| !device.is_dry_run())?;
    let reserved = (0..failed).fold(device.reserved_before(), |sum, index| reserved_after(sum, &trace.entry(index)));
    // The address of a failed request is the free memory of the device.
    let known = reserved.saturating_add(trace.entry(failed).addr);
    device.recorded_capacity().map(|total| total.saturating_sub(known))
}

/// The clocks of the recordings, the time during which all devices were recorded, and that of any of them.
fn clocks(devices: &[DeviceStudy<'_, '_>]) -> (Clocks, Option<u64>, Option<u64>) {
    let range = |device: &DeviceStudy<'_, '_>| {
        let trace = device.device();
        Some((trace.time_us(0)?, trace.time_us(trace.len().checked_sub(1)?)?))
    };
    let Some(ranges) = devices.iter().map(range).collect::<Option<Vec<_>>>() else {
        return (Clocks::Missing, None, None);
    };
    let starts = || ranges.iter().map(|(start, _)| *start);
    let ends = || ranges.iter().map(|(_, end)| *end);
    let span = ends().max().zip(starts().min()).map(|(end, start)| end.saturating_sub(start));
    let overlap = ends().min().unwrap_or(0).checked_sub(starts().max().unwrap_or(0));
    match overlap {
        Some(overlap @ 1..) => (Clocks::Overlap, Some(overlap), span),
        _ => (Clocks::Apart, None, span),
    }
}

/// The fractions of a device of `total` bytes that share its `usable` bytes in proportion to the `smallest` memory of
/// each process, if every process is served under its fraction.
fn fractions(
    devices: &[DeviceStudy<'_, '_>],
    hypotheses: &[Hypothesis],
    smallest: &[u64],
    (total, usable): (u64, u64),
) -> Option<Vec<f64>> {
    let needed = sum(smallest.iter().copied());
    if needed > usable {
        return None;
    }
    let share = usable as f64 / needed.max(1) as f64 / total as f64;
    let fractions = smallest.iter().map(|bytes| (*bytes as f64 * share * FRACTION_STEPS).floor() / FRACTION_STEPS);
    let fractions: Vec<f64> = fractions.collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the device")]
    let is_served = |((device, hypothesis), fraction): ((&DeviceStudy<'_, '_>, &Hypothesis), &f64)| {
        let limit = (total as f64 * fraction) as u64;
        let limited = Hypothesis { limit: Some(limit), ..hypothesis.clone() };
        peak_if_served(device.program(), &limited).is_some_and(|peak| peak <= limit)
    };
    devices.iter().zip(hypotheses).zip(&fractions).all(is_served).then_some(fractions)
}

/// Warns about limits of the recording of one process.
fn warn(path: &str, device: DeviceStudy<'_, '_>, warnings: &mut Warnings) {
    for warning in divergence_warning(device).into_iter().chain(single_entry_warning(device)) {
        warnings.add(warning.code, format!("{path}: {}", warning.message));
    }
    if device.reserved_before() > 0 {
        let message = format!("{path}: the recording starts late: its earlier memory counts as held from the start");
        warnings.add(Code::Truncated, message);
    }
    if device.device().failed_requests().next().is_some() {
        let message =
            format!("{path}: a request failed in the recording: memory of what would have followed is missing");
        warnings.add(Code::EndsInFailure, message);
    }
}

//! Measuring how long calls to a GPU take, by size.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cost::{COST_SCHEMA, Cost, Costs, CostsByCall};
use super::gpu_replay::{LiveError, percentile};
use crate::allocator::SMALL_SEGMENT;
use crate::allocator::device::DeviceMemory as _;
use crate::allocator::device::cuda::{CudaDevice, DeviceCall};
use crate::base::units::MIB;

/// Sizes to measure, each only if twice as much is available: a small segment, and multiples of the granule of large
/// expandable segments.
const SIZES: [u64; 8] = [SMALL_SEGMENT, 20 * MIB, 60 * MIB, 200 * MIB, 600 * MIB, 2000 * MIB, 6000 * MIB, 20_000 * MIB];
/// Granule by which large expandable segments grow.
const LARGE_GRANULE: u64 = 20 * MIB;
/// Calls of each kind and size.
const SAMPLES: usize = 21;

/// Measures how long each kind of device call takes on `gpu`, until `stop` is set.
///
/// # Errors
/// If the driver fails, if not even the smallest size fits, or if `stop` is set before the measurement is complete.
pub fn calibrate(gpu: &mut CudaDevice, stop: &AtomicBool) -> Result<Costs, LiveError> {
    let gpu_index = gpu.info().gpu;
    let driver_error = |error| LiveError::Driver { gpu: gpu_index, error };
    gpu.reset(0).map_err(driver_error)?;
    let within_reach = gpu.info().usable;
    for size in SIZES.into_iter().filter(|size| *size <= within_reach / 2) {
        for _ in 0..SAMPLES {
            if stop.load(Ordering::Relaxed) {
                return Err(LiveError::StoppedMeasuring);
            }
            measure(gpu, size);
        }
        if let Some(error) = gpu.fault() {
            return Err(driver_error(error.clone()));
        }
    }
    let mut durations_by_call: BTreeMap<(DeviceCall, u64), Vec<Duration>> = BTreeMap::new();
    for timing in gpu.timings() {
        durations_by_call.entry((timing.call, timing.bytes)).or_default().push(timing.duration);
    }
    let mut calls = CostsByCall::default();
    for ((call, bytes), mut durations) in durations_by_call {
        durations.sort_unstable();
        let median_ns = u64::try_from(percentile(&durations, 50).as_nanos()).unwrap_or(u64::MAX);
        let costs = match call {
            DeviceCall::Malloc => &mut calls.malloc,
            DeviceCall::Free => &mut calls.free,
            DeviceCall::Map => &mut calls.map,
            DeviceCall::Unmap => &mut calls.unmap,
        };
        costs.push(Cost { bytes, median_ns, samples: durations.len() as u64 });
    }
    if [&calls.malloc, &calls.free, &calls.map, &calls.unmap].iter().any(|costs| costs.is_empty()) {
        return Err(LiveError::TooLittleMemory { gpu: gpu_index, within_reach });
    }
    let (major, minor) = gpu.info().cuda_version;
    Ok(Costs {
        schema: COST_SCHEMA.to_owned(),
        gpu: gpu.info().name.clone(),
        cuda_version: format!("{major}.{minor}"),
        calls,
    })
}

/// Makes one call of each kind; a size that the GPU refuses yields no times.
fn measure(gpu: &mut CudaDevice, size: u64) {
    if let Ok(addr) = gpu.allocate(size) {
        gpu.free(addr, size);
    }
    let granule = size.min(LARGE_GRANULE);
    if let Ok(base) = gpu.reserve(size, granule) {
        if gpu.map(base, size).is_ok() {
            gpu.unmap(base, size);
        }
        gpu.release(base, size);
    }
}

//! How long calls to a GPU take, by size, measured for estimates.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cost::{COST_SCHEMA, Cost, Costs, CostsByCall};
use super::live::{LiveError, part};
use crate::allocator::SMALL_SEGMENT;
use crate::allocator::device::DeviceMemory as _;
use crate::allocator::device::cuda::{Cuda, DeviceCall};
use crate::base::units::MIB;

/// Bytes that are measured, as far as twice as much is within reach: a small segment, and multiples of
/// what large expandable segments grow by.
const SIZES: [u64; 8] =
    [SMALL_SEGMENT, 20 * MIB, 60 * MIB, 200 * MIB, 600 * MIB, 2000 * MIB, 6000 * MIB, 20_000 * MIB];
/// Large expandable segments grow by this.
const LARGE_GRANULE: u64 = 20 * MIB;
/// Calls of each kind and size.
const SAMPLES: usize = 21;

/// Measures what each device call costs on `gpu`, until `stop` is set.
///
/// # Errors
/// When the driver fails, not even the smallest size fits, or it was told to stop.
pub fn calibrate(gpu: &mut Cuda, stop: &AtomicBool) -> Result<Costs, LiveError> {
    let number = gpu.facts().gpu;
    let driver = |error| LiveError::Driver { gpu: number, error };
    gpu.start_over(0).map_err(driver)?;
    let within_reach = gpu.facts().within_reach;
    for size in SIZES.into_iter().filter(|size| *size <= within_reach / 2) {
        for _ in 0..SAMPLES {
            if stop.load(Ordering::Relaxed) {
                return Err(LiveError::StoppedMeasuring);
            }
            measure(gpu, size);
        }
        if let Some(error) = gpu.fault() {
            return Err(driver(error.clone()));
        }
    }
    let mut took: BTreeMap<(DeviceCall, u64), Vec<Duration>> = BTreeMap::new();
    for timing in gpu.timings() {
        took.entry((timing.call, timing.bytes)).or_default().push(timing.took);
    }
    let mut calls = CostsByCall::default();
    for ((call, bytes), mut took) in took {
        took.sort_unstable();
        let median_ns = u64::try_from(part(&took, 50).as_nanos()).unwrap_or(u64::MAX);
        let costs = match call {
            DeviceCall::Malloc => &mut calls.malloc,
            DeviceCall::Free => &mut calls.free,
            DeviceCall::Map => &mut calls.map,
            DeviceCall::Unmap => &mut calls.unmap,
        };
        costs.push(Cost { bytes, median_ns, samples: took.len() as u64 });
    }
    if [&calls.malloc, &calls.free, &calls.map, &calls.unmap].iter().any(|of| of.is_empty()) {
        return Err(LiveError::NoRoom { gpu: number, within_reach });
    }
    let (major, minor) = gpu.facts().cuda_version;
    Ok(Costs {
        schema: COST_SCHEMA.to_owned(),
        gpu: gpu.facts().name.clone(),
        cuda_version: format!("{major}.{minor}"),
        calls,
    })
}

/// One call of each kind; a size that the GPU refuses gives no times.
fn measure(gpu: &mut Cuda, size: u64) {
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

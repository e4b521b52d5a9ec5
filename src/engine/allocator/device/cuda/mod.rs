//! A real GPU.
//!
//! [`CudaDevice`] backs every range of a [`SimulatedDevice`] with real memory: the allocator sees simulated
//! addresses, the driver its own. So the GPU affects the allocator's decisions only when it runs out of memory,
//! and a replay can start from memory at recorded addresses. The calls are those that PyTorch makes: `cuMemAlloc`
//! (`cudaMalloc`), and for expandable segments a reservation, a piece of mapped physical memory for each granule,
//! and access to the whole range.
//!
//! [`CudaDevice`] releases everything when it is dropped, and the driver does when the process ends.

mod driver;
mod mapped_pieces;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use driver::CudaContext;
pub use driver::CudaError;
use mapped_pieces::{MappedPieces, PAGE};
use serde::Serialize;

use super::{DeviceMemory, OutOfMemory, ReplayDevice, Reservation, SimulatedDevice};
use crate::base::units::TIB;

/// Snapshots do not record the size of a reservation. Initial expandable memory gets at most this much, which is more
/// than PyTorch reserves on any GPU (9/8 of its memory).
const MAX_INITIAL_RESERVATION: u64 = TIB;

/// A kind of call that allocates or releases device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceCall {
    /// `cudaMalloc`
    Malloc,
    /// `cudaFree`
    Free,
    /// Memory is mapped into a part of a reservation.
    Map,
    /// That memory is unmapped and released.
    Unmap,
}

/// The duration of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallTiming {
    pub call: DeviceCall,
    /// Time in the driver, for all granules of a range together.
    pub duration: Duration,
}

/// The GPU on which a trace was replayed.
#[derive(Debug, Clone, Serialize)]
pub struct GpuReport {
    /// Index of the GPU, as the driver counts.
    pub gpu: u32,
    /// Product name of the GPU.
    pub name: String,
    /// The newest CUDA version that the driver supports, such as `12.8`.
    pub cuda_version: String,
    /// Total memory of the GPU, in bytes.
    pub total_bytes: u64,
    /// Free memory before the replay, in bytes.
    pub free_bytes: u64,
    /// Free memory that the replay left unused (`--reserve`), in bytes.
    pub kept_free_bytes: u64,
    /// Memory available to the replay: `free_bytes` - `kept_free_bytes`. This is the capacity for what-ifs on this
    /// GPU.
    pub within_reach_bytes: u64,
}

/// A call that the driver refused although the simulated device had room for it. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The requested bytes.
    pub size: u64,
    /// Free bytes of the driver.
    pub driver_free: u64,
}

/// A reservation of the driver.
#[derive(Debug)]
struct Reserved {
    driver_addr: u64,
    size: u64,
    mapped: MappedPieces,
}

/// The calls of a replay, and why it may have ended.
#[derive(Debug, Default)]
pub struct CudaRun {
    /// The calls, without those for initial memory.
    pub timings: Vec<CallTiming>,
    /// The first call that the driver refused although the simulated device had room.
    pub refusal: Option<Refusal>,
    /// The first error other than out-of-memory. Every later call fails.
    pub fault: Option<CudaError>,
    /// Bytes of initial memory for which the GPU has no room.
    pub missing_bytes: u64,
    min_free: u64,
}

/// The memory of one GPU.
#[derive(Debug)]
pub struct CudaDevice {
    gpu: CudaContext,
    info: GpuReport,
    touches: bool,
    simulated_device: SimulatedDevice,
    /// Driver address of each segment, by simulated address.
    segments: BTreeMap<u64, u64>,
    /// By simulated address.
    reservations: BTreeMap<u64, Reserved>,
    /// Since [`CudaDevice::reset`].
    run: CudaRun,
}

impl CudaDevice {
    /// Opens GPU number `gpu`, but leaves `keep_free` bytes of its free memory unused. With `touches` all memory is
    /// written once when it is allocated.
    ///
    /// # Errors
    /// If there is no such GPU, or no driver with the needed functions.
    pub fn open(gpu: u32, keep_free: u64, touches: bool) -> Result<Self, CudaError> {
        let number = gpu;
        let gpu = CudaContext::open(number)?;
        let (free, total) = gpu.memory()?;
        let (major, minor) = gpu.cuda_version()?;
        let info = GpuReport {
            gpu: number,
            name: gpu.name()?,
            cuda_version: format!("{major}.{minor}"),
            total_bytes: total,
            free_bytes: free,
            kept_free_bytes: keep_free,
            within_reach_bytes: free.saturating_sub(keep_free),
        };
        Ok(Self {
            gpu,
            simulated_device: SimulatedDevice::new(0, 0),
            info,
            touches,
            segments: BTreeMap::new(),
            reservations: BTreeMap::new(),
            run: CudaRun { min_free: free, ..CudaRun::default() },
        })
    }

    /// Releases everything and starts again as device number `device` of a snapshot.
    ///
    /// # Errors
    /// If the driver fails to release something.
    pub fn reset(&mut self, device: u64) -> Result<(), CudaError> {
        self.release_all()?;
        self.simulated_device = self.to_simulated(device);
        self.run = CudaRun { min_free: self.gpu.memory()?.0, ..CudaRun::default() };
        Ok(())
    }

    /// A simulated device with this GPU's total and usable memory.
    pub fn to_simulated(&self, device: u64) -> SimulatedDevice {
        let mut simulated = SimulatedDevice::new(device, self.info.total_bytes);
        simulated.used_elsewhere = self.info.total_bytes.saturating_sub(self.info.within_reach_bytes);
        simulated
    }

    pub fn info(&self) -> &GpuReport {
        &self.info
    }

    /// Whether all memory is written once when it is allocated.
    pub fn touches_memory(&self) -> bool {
        self.touches
    }

    /// The replay since [`CudaDevice::reset`].
    pub fn run(&self) -> &CudaRun {
        &self.run
    }

    /// Peak decrease of the driver's free memory. Other processes' use of the GPU counts too.
    pub fn peak_used(&self) -> u64 {
        self.info.free_bytes.saturating_sub(self.run.min_free)
    }

    /// Releases all memory; goes on after a failure.
    ///
    /// # Errors
    /// The first failure. Memory that could not be released is kept, and tried again by the next call.
    pub fn release_all(&mut self) -> Result<(), CudaError> {
        let Self { gpu, segments, reservations, .. } = self;
        if segments.is_empty() && reservations.is_empty() {
            return Ok(());
        }
        // Unmapping does not synchronize, and the synchronization after a write may have failed.
        let mut first = gpu.synchronize();
        segments.retain(|_, driver_addr| keep_on_error(&mut first, gpu.free(*driver_addr)));
        reservations.retain(|_, reserved| {
            let emptied = reserved.mapped.unmap(gpu, reserved.driver_addr, 0, u64::MAX);
            let released = emptied.and_then(|()| gpu.release(reserved.driver_addr, reserved.size));
            keep_on_error(&mut first, released)
        });
        first
    }

    /// Whether every later call fails.
    pub fn is_broken(&self) -> bool {
        self.run.fault.is_some() || self.run.missing_bytes > 0
    }

    fn check_usable(&self) -> Result<(), OutOfMemory> {
        if self.is_broken() { Err(OutOfMemory) } else { Ok(()) }
    }

    /// Records why the driver refused `size` bytes.
    fn refuse(&mut self, size: u64, error: CudaError) -> OutOfMemory {
        if error.is_out_of_memory() {
            if self.run.refusal.is_none() {
                let memory = self.gpu.memory();
                let driver_free = self.record_fault(memory).map_or(0, |(free, _)| free);
                self.run.refusal = Some(Refusal { size, driver_free });
            }
        } else {
            self.run.fault.get_or_insert(error);
        }
        OutOfMemory
    }

    /// The result of a call that should not fail; records its error.
    fn record_fault<T>(&mut self, result: Result<T, CudaError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.run.fault.get_or_insert(error);
                None
            }
        }
    }

    /// Makes a call and records its duration if it succeeds.
    fn time_call<T>(
        &mut self,
        call: DeviceCall,
        make: impl FnOnce(&mut Self) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let started = Instant::now();
        let result = make(self)?;
        self.run.timings.push(CallTiming { call, duration: started.elapsed() });
        Ok(result)
    }

    /// Writes new memory if wanted, and updates the minimum of free memory.
    fn after_allocation(&mut self, driver_addr: u64, size: u64) {
        if self.touches {
            let written = self.gpu.fill(driver_addr, size);
            self.record_fault(written);
        }
        let memory = self.gpu.memory();
        if let Some((free, _)) = self.record_fault(memory) {
            self.run.min_free = self.run.min_free.min(free);
        }
    }

    /// Maps memory into a part of a reservation; all of it or none. Returns the driver address.
    fn map_reserved(&mut self, addr: u64, size: u64) -> Result<u64, CudaError> {
        let (base, reserved) = self.reservations.range_mut(..=addr).next_back().ok_or(CudaError::TooFar)?;
        let offset = addr - base;
        if offset > reserved.size || size > reserved.size - offset {
            return Err(CudaError::TooFar);
        }
        reserved.mapped.map(&self.gpu, reserved.driver_addr, offset, size)?;
        Ok(reserved.driver_addr + offset)
    }

    fn reserve_addresses(&mut self, addr: u64, size: u64, granule: u64) -> Result<(), CudaError> {
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        let driver_addr = self.gpu.reserve(size)?;
        self.reservations.insert(addr, Reserved { driver_addr, size, mapped: MappedPieces::new(granule) });
        Ok(())
    }

    /// Not timed: the memory existed before the replay.
    fn allocate_initial_memory(&mut self, addr: u64, size: u64, within: Option<Reservation>) -> Result<(), CudaError> {
        let driver_addr = match within {
            None => {
                let driver_addr = self.gpu.allocate(size)?;
                self.segments.insert(addr, driver_addr);
                driver_addr
            }
            Some(reserved) => {
                if !self.reservations.contains_key(&reserved.base) {
                    let addresses = reserved.size.min(MAX_INITIAL_RESERVATION);
                    self.reserve_addresses(reserved.base, addresses, reserved.granule)?;
                }
                self.map_reserved(addr, size)?
            }
        };
        self.after_allocation(driver_addr, size);
        Ok(())
    }
}

/// Whether an item stays allocated after `result` of releasing it. Records the first error.
fn keep_on_error(first: &mut Result<(), CudaError>, result: Result<(), CudaError>) -> bool {
    let failed = result.is_err();
    if first.is_ok() {
        *first = result;
    }
    failed
}

impl DeviceMemory for &mut CudaDevice {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        self.check_usable()?;
        let addr = self.simulated_device.allocate(size)?;
        let driver_addr = self.time_call(DeviceCall::Malloc, |this| this.gpu.allocate(size)).map_err(|error| {
            self.simulated_device.free(addr, size);
            self.refuse(size, error)
        })?;
        self.segments.insert(addr, driver_addr);
        self.after_allocation(driver_addr, size);
        Ok(addr)
    }

    fn free(&mut self, addr: u64, size: u64) {
        self.simulated_device.free(addr, size);
        if let Some(&driver_addr) = self.segments.get(&addr) {
            let freed = self.time_call(DeviceCall::Free, |this| this.gpu.free(driver_addr));
            if self.record_fault(freed).is_some() {
                self.segments.remove(&addr);
            }
        }
    }

    fn reserve(&mut self, size: u64, granule: u64) -> Result<u64, OutOfMemory> {
        self.check_usable()?;
        let base = self.simulated_device.reserve(size, granule)?;
        self.reserve_addresses(base, size, granule).map_err(|error| {
            self.simulated_device.release(base, size);
            self.refuse(size, error)
        })?;
        Ok(base)
    }

    fn release(&mut self, addr: u64, size: u64) {
        self.simulated_device.release(addr, size);
        if let Some(reserved) = self.reservations.get(&addr) {
            let released = self.gpu.release(reserved.driver_addr, reserved.size);
            if self.record_fault(released).is_some() {
                self.reservations.remove(&addr);
            }
        }
    }

    fn map(&mut self, addr: u64, size: u64) -> Result<(), OutOfMemory> {
        self.check_usable()?;
        self.simulated_device.map(addr, size)?;
        let driver_addr = self.time_call(DeviceCall::Map, |this| this.map_reserved(addr, size)).map_err(|error| {
            self.simulated_device.unmap(addr, size);
            self.refuse(size, error)
        })?;
        self.after_allocation(driver_addr, size);
        Ok(())
    }

    fn unmap(&mut self, addr: u64, size: u64) {
        self.simulated_device.unmap(addr, size);
        let unmapped = self.time_call(DeviceCall::Unmap, |this| {
            // The GPU had no room for this initial memory.
            let Some((base, reserved)) = this.reservations.range_mut(..=addr).next_back() else {
                return Ok(());
            };
            let from = addr - base;
            reserved.mapped.unmap(&this.gpu, reserved.driver_addr, from, from.saturating_add(size))
        });
        self.record_fault(unmapped);
    }

    fn free_bytes(&self) -> u64 {
        self.simulated_device.free_bytes()
    }

    fn total_bytes(&self) -> u64 {
        self.simulated_device.total_bytes()
    }
}

impl ReplayDevice for &mut CudaDevice {
    fn add_initial_memory(&mut self, addr: u64, size: u64, within: Option<Reservation>) {
        let room = self.simulated_device.free_bytes();
        self.simulated_device.add_initial_memory(addr, size, within);
        if self.is_broken() || size > room {
            self.run.missing_bytes = self.run.missing_bytes.saturating_add(size.saturating_sub(room));
            return;
        }
        if let Err(error) = self.allocate_initial_memory(addr, size, within) {
            if error.is_out_of_memory() {
                self.run.missing_bytes = self.run.missing_bytes.saturating_add(size);
            } else {
                self.run.fault.get_or_insert(error);
            }
        }
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // The driver releases the rest when the process ends.
        let _ = self.release_all();
    }
}

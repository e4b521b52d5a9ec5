//! A real GPU.
//!
//! [`Cuda`] keeps the books of a [`Simulated`] device and puts real memory behind every range of it: the
//! allocator sees the simulated addresses, the driver its own. So what the allocator decides depends on
//! the GPU only where the GPU refuses memory, and it can go on from memory at recorded addresses. The
//! calls are those that PyTorch makes: `cuMemAlloc` (what `cudaMalloc` is), and for expandable segments a
//! reservation, a piece of physical memory for each granule, mapped, and access to the whole.
//!
//! Whatever ends a replay, nothing stays allocated: [`Cuda`] gives everything back when it is dropped, and
//! the driver does when the process ends.

mod driver;
mod mapped_pieces;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use driver::CudaContext;
pub use driver::CudaError;
use mapped_pieces::{MappedPieces, PAGE};

use super::{DeviceMemory, OutOfMemory, ReplayDevice, Reservation, SimulatedDevice};
use crate::base::units::TIB;

/// The most addresses that are reserved around memory held before a recording, whose own reservation
/// the file does not tell: more than PyTorch reserves on any GPU (9/8 of its memory).
const MAX_INITIAL_RESERVATION: u64 = TIB;

/// A kind of call that takes memory from the device or gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceCall {
    /// `cudaMalloc`
    Malloc,
    /// `cudaFree`
    Free,
    /// Memory put behind a part of a reservation.
    Map,
    /// Memory taken away from there.
    Unmap,
}

/// How long a call took.
#[derive(Debug, Clone, Copy)]
pub struct CallTiming {
    /// Its kind.
    pub call: DeviceCall,
    /// Bytes that it took or gave back.
    pub bytes: u64,
    /// In the driver, all granules of a range together.
    pub duration: Duration,
}

/// Which GPU it is. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct GpuInfo {
    /// As the driver counts.
    pub gpu: u32,
    /// What the maker calls it.
    pub name: String,
    /// The newest CUDA that the driver serves: major and minor.
    pub cuda_version: (u32, u32),
    /// All of its memory.
    pub total: u64,
    /// What was free once the driver had set itself up.
    pub free: u64,
    /// What is left alone.
    pub kept_free: u64,
    /// What can be had: free, less what is left alone.
    pub usable: u64,
}

/// A request to the driver that it refused though the books had room for it. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Asked for.
    pub size: u64,
    /// Free by the driver's count.
    pub driver_free: u64,
}

/// Addresses that are reserved, by the driver's address, with what is mapped there.
#[derive(Debug)]
struct Reserved {
    driver_addr: u64,
    size: u64,
    mapped: MappedPieces,
}

/// One GPU's memory.
#[derive(Debug)]
pub struct CudaDevice {
    gpu: CudaContext,
    facts: GpuInfo,
    touches: bool,
    simulated_device: SimulatedDevice,
    /// The driver's address of each segment, by the books' address.
    segments: BTreeMap<u64, u64>,
    /// By the books' address.
    reservations: BTreeMap<u64, Reserved>,
    timings: Vec<CallTiming>,
    refusal: Option<Refusal>,
    fault: Option<CudaError>,
    lacking: u64,
    min_free: u64,
}

impl CudaDevice {
    /// GPU number `gpu`, of whose free memory `keep_free` bytes are left alone. `touches` writes all memory
    /// once when it is taken.
    ///
    /// # Errors
    /// When there is no such GPU or no driver that knows what is needed.
    pub fn open(gpu: u32, keep_free: u64, touches: bool) -> Result<Self, CudaError> {
        let number = gpu;
        let gpu = CudaContext::open(number)?;
        let (free, total) = gpu.memory()?;
        let facts = GpuInfo {
            gpu: number,
            name: gpu.name()?,
            cuda_version: gpu.cuda_version()?,
            total,
            free,
            kept_free: keep_free,
            usable: free.saturating_sub(keep_free),
        };
        Ok(Self {
            gpu,
            simulated_device: SimulatedDevice::new(0, 0),
            facts,
            touches,
            segments: BTreeMap::new(),
            reservations: BTreeMap::new(),
            timings: Vec::new(),
            refusal: None,
            fault: None,
            lacking: 0,
            min_free: free,
        })
    }

    /// Gives everything back and begins anew, as device number `device` of a snapshot.
    ///
    /// # Errors
    /// When the driver cannot take something back.
    pub fn reset(&mut self, device: u64) -> Result<(), CudaError> {
        self.release_all()?;
        self.simulated_device = self.simulated(device);
        self.timings.clear();
        self.refusal = None;
        self.fault = None;
        self.lacking = 0;
        self.min_free = self.gpu.memory()?.0;
        Ok(())
    }

    /// A simulated device of this GPU's size, with as much within reach.
    pub fn simulated(&self, device: u64) -> SimulatedDevice {
        let mut simulated = SimulatedDevice::new(device, self.facts.total);
        simulated.add_used_elsewhere(self.facts.total.saturating_sub(self.facts.usable));
        simulated
    }

    /// Which GPU it is.
    pub fn facts(&self) -> &GpuInfo {
        &self.facts
    }

    /// Whether all memory is written once when it is taken.
    pub fn touches(&self) -> bool {
        self.touches
    }

    /// How long each call took since [`Cuda::start_over`]; not those that provide what was held before.
    pub fn timings(&self) -> &[CallTiming] {
        &self.timings
    }

    /// The first call that failed otherwise than for lack of memory. Everything is refused from there on.
    pub fn fault(&self) -> Option<&CudaError> {
        self.fault.as_ref()
    }

    /// The first request that the driver refused though there was room by the books.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Bytes of what was held before that the GPU has no room for.
    pub fn missing_bytes(&self) -> u64 {
        self.lacking
    }

    /// The most that was taken, by the driver's count of free memory; others' use of the GPU counts too.
    pub fn peak_used(&self) -> u64 {
        self.facts.free.saturating_sub(self.min_free)
    }

    /// Gives back all that is held; every call is made, whether or not one before it failed.
    ///
    /// # Errors
    /// The first failure. What failed is still held, and tried again the next time.
    pub fn release_all(&mut self) -> Result<(), CudaError> {
        let Self { gpu, segments, reservations, .. } = self;
        if segments.is_empty() && reservations.is_empty() {
            return Ok(());
        }
        // Unmapping waits for nothing, and the wait for a write may be what failed.
        let mut first = gpu.synchronize();
        segments.retain(|_, real| keep_on_error(&mut first, gpu.free(*real)));
        reservations.retain(|_, reserved| {
            let emptied = reserved.mapped.unmap(gpu, reserved.driver_addr, 0, u64::MAX);
            let released = emptied.and_then(|()| gpu.release(reserved.driver_addr, reserved.size));
            keep_on_error(&mut first, released)
        });
        first
    }

    /// Whether everything is refused from here on.
    pub fn is_broken(&self) -> bool {
        self.fault.is_some() || self.lacking > 0
    }

    /// What the allocator is told when the driver did not give `size` bytes.
    fn refuse(&mut self, size: u64, error: CudaError) -> OutOfMemory {
        if error.is_out_of_memory() {
            if self.refusal.is_none() {
                let memory = self.gpu.memory();
                let driver_free = self.record_fault(memory).map_or(0, |(free, _)| free);
                self.refusal = Some(Refusal { size, driver_free });
            }
        } else {
            self.fault.get_or_insert(error);
        }
        OutOfMemory
    }

    /// The result of a call that should not fail.
    fn record_fault<T>(&mut self, result: Result<T, CudaError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fault.get_or_insert(error);
                None
            }
        }
    }

    /// Makes a call, and notes how long it took if it went well.
    fn time_call<T>(
        &mut self,
        call: DeviceCall,
        bytes: u64,
        make: impl FnOnce(&mut Self) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let started = Instant::now();
        let result = make(self)?;
        self.timings.push(CallTiming { call, bytes, duration: started.elapsed() });
        Ok(result)
    }

    /// New memory is there: writes it if wanted, and looks at what is left.
    fn after_allocation(&mut self, real: u64, size: u64) {
        if self.touches {
            let written = self.gpu.fill(real, size);
            self.record_fault(written);
        }
        let memory = self.gpu.memory();
        if let Some((free, _)) = self.record_fault(memory) {
            self.min_free = self.min_free.min(free);
        }
    }

    /// Puts memory behind a part of a reservation; all of it or none. Gives the driver's address.
    fn map_reserved(&mut self, addr: u64, size: u64) -> Result<u64, CudaError> {
        let around = self.reservations.range_mut(..=addr).next_back();
        let (offset, reserved) = around
            .map(|(base, reserved)| (addr - base, reserved))
            .filter(|(offset, reserved)| *offset <= reserved.size && size <= reserved.size - offset)
            .ok_or(CudaError::TooFar)?;
        reserved.mapped.map(&self.gpu, reserved.driver_addr, offset, size)?;
        Ok(reserved.driver_addr + offset)
    }

    fn reserve_addresses(&mut self, addr: u64, size: u64, granule: u64) -> Result<(), CudaError> {
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        let real = self.gpu.reserve(size)?;
        self.reservations
            .insert(addr, Reserved { driver_addr: real, size, mapped: MappedPieces::new(granule) });
        Ok(())
    }

    /// Memory that was there before the replay: not timed.
    fn allocate_initial_memory(
        &mut self,
        addr: u64,
        size: u64,
        within: Option<Reservation>,
    ) -> Result<(), CudaError> {
        let real = match within {
            None => {
                let real = self.gpu.allocate(size)?;
                self.segments.insert(addr, real);
                real
            }
            Some(reserved) => {
                if !self.reservations.contains_key(&reserved.base) {
                    let addresses = reserved.size.min(MAX_INITIAL_RESERVATION);
                    self.reserve_addresses(reserved.base, addresses, reserved.granule)?;
                }
                self.map_reserved(addr, size)?
            }
        };
        self.after_allocation(real, size);
        Ok(())
    }
}

/// Whether something is still held after `result` of giving it back; notes the first error.
fn keep_on_error(first: &mut Result<(), CudaError>, result: Result<(), CudaError>) -> bool {
    let failed = result.is_err();
    if first.is_ok() {
        *first = result;
    }
    failed
}

impl DeviceMemory for CudaDevice {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        if self.is_broken() {
            return Err(OutOfMemory);
        }
        let addr = self.simulated_device.allocate(size)?;
        match self.time_call(DeviceCall::Malloc, size, |this| this.gpu.allocate(size)) {
            Ok(real) => {
                self.segments.insert(addr, real);
                self.after_allocation(real, size);
                Ok(addr)
            }
            Err(error) => {
                self.simulated_device.free(addr, size);
                Err(self.refuse(size, error))
            }
        }
    }

    fn free(&mut self, addr: u64, size: u64) {
        self.simulated_device.free(addr, size);
        if let Some(&real) = self.segments.get(&addr) {
            let freed = self.time_call(DeviceCall::Free, size, |this| this.gpu.free(real));
            if self.record_fault(freed).is_some() {
                self.segments.remove(&addr);
            }
        }
    }

    fn reserve(&mut self, size: u64, granule: u64) -> Result<u64, OutOfMemory> {
        if self.is_broken() {
            return Err(OutOfMemory);
        }
        let base = self.simulated_device.reserve(size, granule)?;
        match self.reserve_addresses(base, size, granule) {
            Ok(()) => Ok(base),
            Err(error) => {
                self.simulated_device.release(base, size);
                Err(self.refuse(size, error))
            }
        }
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
        if self.is_broken() {
            return Err(OutOfMemory);
        }
        self.simulated_device.map(addr, size)?;
        match self.time_call(DeviceCall::Map, size, |this| this.map_reserved(addr, size)) {
            Ok(real) => {
                self.after_allocation(real, size);
                Ok(())
            }
            Err(error) => {
                self.simulated_device.unmap(addr, size);
                Err(self.refuse(size, error))
            }
        }
    }

    fn unmap(&mut self, addr: u64, size: u64) {
        self.simulated_device.unmap(addr, size);
        let unmapped = self.time_call(DeviceCall::Unmap, size, |this| {
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

impl ReplayDevice for CudaDevice {
    fn add_initial_memory(&mut self, addr: u64, size: u64, within: Option<Reservation>) {
        let room = self.simulated_device.free_bytes();
        self.simulated_device.add_initial_memory(addr, size, within);
        if self.is_broken() || size > room {
            self.lacking = self.lacking.saturating_add(size.saturating_sub(room));
            return;
        }
        if let Err(error) = self.allocate_initial_memory(addr, size, within) {
            if error.is_out_of_memory() {
                self.lacking = self.lacking.saturating_add(size);
            } else {
                self.fault.get_or_insert(error);
            }
        }
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // What the driver does not take back now, it does when the process ends.
        let _ = self.release_all();
    }
}

//! The device that provides the allocator's memory.
//!
//! [`DeviceMemory`] is the allocator's view of a GPU: segments, address reservations with memory mapped into them,
//! and the amount of free memory. It is called once per segment, not per allocation, so it is a trait object.
//! [`SimulatedDevice`] has a given capacity, `cuda::CudaDevice` (feature `cuda`) is a real GPU, and a replay
//! returns the recorded addresses and failures. [`GpuModel`] has the properties of known GPUs.
//!
//! A device does not know blocks, pools, streams or traces.

#[cfg(feature = "cuda")]
#[doc(hidden)]
pub mod cuda;
mod free_ranges;
mod gpu_model;
mod simulated;

pub(super) use free_ranges::{FreeRange, FreeRanges};
pub use gpu_model::{GPUS, GpuModel, parse_capacity, parse_replay_capacity};
pub use simulated::{Placement, SimulatedDevice};

/// Capacity of a device whose size does not matter: larger than any GPU, but sums do not overflow.
pub const UNBOUNDED: u64 = 1 << 46;

/// The device refused: too little free memory, or no address range that is large enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

/// A range of reserved addresses. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// First address.
    pub base: u64,
    /// Length of the range; none of it needs to be mapped.
    pub size: u64,
    /// Memory is mapped in multiples of this.
    pub granule: u64,
}

/// Memory of one device. Addresses and sizes are in bytes.
pub trait DeviceMemory {
    /// `cudaMalloc`: the address of `size` new bytes.
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory>;

    /// `cudaFree` of a segment from [`DeviceMemory::allocate`].
    fn free(&mut self, addr: u64, size: u64);

    /// `cuMemAddressReserve`: reserves `size` bytes of addresses. Memory will be mapped in multiples of `granule`.
    fn reserve(&mut self, size: u64, granule: u64) -> Result<u64, OutOfMemory>;

    /// `cuMemAddressFree`
    fn release(&mut self, addr: u64, size: u64);

    /// Maps memory into a part of a reservation; all of it or none.
    fn map(&mut self, addr: u64, size: u64) -> Result<(), OutOfMemory>;

    /// Unmaps and releases the memory of a part of a reservation.
    fn unmap(&mut self, addr: u64, size: u64);

    /// The free bytes of `cudaMemGetInfo`.
    fn free_bytes(&self) -> u64;

    /// The total bytes of `cudaMemGetInfo`.
    fn total_bytes(&self) -> u64;
}

/// A device on which a recording can be replayed.
pub trait ReplayDevice: DeviceMemory {
    /// Adds memory that was in use before the recording: a segment, or memory mapped into a part of `within`. A
    /// device that cannot provide it fails every later call.
    fn add_initial_memory(&mut self, addr: u64, size: u64, within: Option<Reservation>);

    /// Adds free memory. A real device cannot.
    fn add_capacity(&mut self, _bytes: u64) {}
}

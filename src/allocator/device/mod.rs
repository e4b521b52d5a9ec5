//! Where the allocator's memory comes from.
//!
//! [`DeviceMemory`] is all that the allocator knows of a GPU: whole segments, address reservations with
//! memory mapped into them, and how much is free. It is asked once a segment, not once an allocation,
//! so it is a trait object. [`Simulated`] is a device of a given capacity; the replay of a recording
//! answers with the recording's own addresses and failures; `cuda::Cuda` (feature `cuda`) is a real GPU.
//! [`Gpu`] is what can be said of one by its name.
//!
//! Knows nothing of blocks, pools, streams or traces.

#[cfg(feature = "cuda")]
pub mod cuda;
mod gpu_model;
mod simulated;

pub use gpu_model::{GPUS, GpuModel};
pub use simulated::{Placement, SimulatedDevice};

/// Bytes of a device whose size does not matter: larger than any, small enough to add up.
pub const UNBOUNDED: u64 = 1 << 46;

/// The device has no memory left for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

/// A range of reserved addresses. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Where it begins.
    pub base: u64,
    /// Its length.
    pub size: u64,
    /// The unit in which memory is mapped into it.
    pub granule: u64,
}

/// Memory of one device. Addresses and sizes are in bytes.
pub trait DeviceMemory {
    /// `cudaMalloc`: the address of `size` new bytes.
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory>;

    /// `cudaFree` of what [`DeviceMemory::allocate`] gave.
    fn free(&mut self, addr: u64, size: u64);

    /// Reserves `size` bytes of addresses, with no memory behind them yet: that comes and goes in
    /// multiples of `granule`.
    fn reserve(&mut self, size: u64, granule: u64) -> Result<u64, OutOfMemory>;

    /// Gives a reservation back.
    fn release(&mut self, addr: u64, size: u64);

    /// Puts memory behind a part of a reservation; all of it or none.
    fn map(&mut self, addr: u64, size: u64) -> Result<(), OutOfMemory>;

    /// Takes the memory behind a part of a reservation away.
    fn unmap(&mut self, addr: u64, size: u64);

    /// Bytes that are free now, as `cudaMemGetInfo` says.
    fn free_bytes(&self) -> u64;

    /// Bytes of the whole device.
    fn total_bytes(&self) -> u64;
}

/// A device that recorded calls can be replayed on.
pub trait ReplayDevice: DeviceMemory {
    /// Memory that was held before the first call: a segment, or memory mapped into a part of `within`.
    /// A device that cannot provide it remembers that, and refuses everything.
    fn add_initial_memory(&mut self, addr: u64, size: u64, within: Option<Reservation>);

    /// Adds memory; a real device has what it has.
    fn add_capacity(&mut self, _bytes: u64) {}
}

// A device can be borrowed for a replay.
impl<D: DeviceMemory + ?Sized> DeviceMemory for &mut D {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        (**self).allocate(size)
    }

    fn free(&mut self, addr: u64, size: u64) {
        (**self).free(addr, size);
    }

    fn reserve(&mut self, size: u64, granule: u64) -> Result<u64, OutOfMemory> {
        (**self).reserve(size, granule)
    }

    fn release(&mut self, addr: u64, size: u64) {
        (**self).release(addr, size);
    }

    fn map(&mut self, addr: u64, size: u64) -> Result<(), OutOfMemory> {
        (**self).map(addr, size)
    }

    fn unmap(&mut self, addr: u64, size: u64) {
        (**self).unmap(addr, size);
    }

    fn free_bytes(&self) -> u64 {
        (**self).free_bytes()
    }

    fn total_bytes(&self) -> u64 {
        (**self).total_bytes()
    }
}

impl<D: ReplayDevice + ?Sized> ReplayDevice for &mut D {
    fn add_initial_memory(&mut self, addr: u64, size: u64, within: Option<Reservation>) {
        (**self).add_initial_memory(addr, size, within);
    }

    fn add_capacity(&mut self, bytes: u64) {
        (**self).add_capacity(bytes);
    }
}

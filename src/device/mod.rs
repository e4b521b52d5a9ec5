//! Where the allocator's memory comes from.
//!
//! [`DeviceMemory`] is all that the allocator knows of a GPU: whole segments, address reservations with
//! memory mapped into them, and how much is free. It is asked once a segment, not once an allocation,
//! so it is a trait object. [`Simulated`] is a device of a given capacity; the replay of a recording
//! answers with the recording's own addresses and failures.
//!
//! Knows nothing of blocks, pools, streams or traces.

mod simulated;

pub use simulated::Simulated;

/// The device has no memory left for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

/// Memory of one device. Addresses and sizes are in bytes.
pub trait DeviceMemory {
    /// `cudaMalloc`: the address of `size` new bytes.
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory>;

    /// `cudaFree` of what [`DeviceMemory::allocate`] gave.
    fn free(&mut self, addr: u64, size: u64);

    /// Reserves `size` bytes of addresses, with no memory behind them.
    fn reserve(&mut self, size: u64) -> Result<u64, OutOfMemory>;

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

//! Physical memory mapped into one reservation, granule by granule.

use std::collections::BTreeMap;

use super::driver::{CudaContext, CudaError, Handle};
use crate::base::units::MIB;

/// The driver's granularity of reservations and physical memory.
pub(super) const PAGE: u64 = 2 * MIB;

#[derive(Debug)]
struct PhysicalPiece {
    size: u64,
    handle: Handle,
    is_mapped: bool,
}

/// Pieces of physical memory by their offset in the reservation. A piece is removed only after the driver has
/// released it.
#[derive(Debug)]
pub(super) struct MappedPieces {
    granule: u64,
    pieces: BTreeMap<u64, PhysicalPiece>,
}

impl MappedPieces {
    /// Pieces end at multiples of `granule` bytes, as PyTorch's do.
    pub(super) fn new(granule: u64) -> Self {
        Self { granule: granule.max(PAGE), pieces: BTreeMap::new() }
    }

    /// Maps `size` bytes at `offset` of the reservation at driver address `driver_addr`; all or nothing.
    pub(super) fn map(&mut self, gpu: &CudaContext, driver_addr: u64, offset: u64, size: u64) -> Result<(), CudaError> {
        let done = self.try_map(gpu, driver_addr, offset, offset + size);
        if done.is_err() {
            // A failure to unmap outranks the failure to map.
            self.unmap(gpu, driver_addr, offset, offset + size)?;
        }
        done
    }

    fn try_map(&mut self, gpu: &CudaContext, driver_addr: u64, from: u64, to: u64) -> Result<(), CudaError> {
        let mut at = from;
        while at < to {
            let size = ((at / self.granule + 1) * self.granule).min(to) - at;
            let handle = gpu.create(size)?;
            self.pieces.insert(at, PhysicalPiece { size, handle, is_mapped: false });
            at += size;
        }
        for (at, piece) in self.pieces.range_mut(from..to) {
            gpu.map(driver_addr + at, piece.size, piece.handle)?;
            piece.is_mapped = true;
        }
        gpu.set_access(driver_addr + from, to - from)
    }

    /// Unmaps and releases the pieces in `from..to`; goes on after an error and returns the first one.
    pub(super) fn unmap(&mut self, gpu: &CudaContext, driver_addr: u64, from: u64, to: u64) -> Result<(), CudaError> {
        let mut first = Ok(());
        let mut gone = Vec::new();
        for (at, piece) in self.pieces.range_mut(from..to) {
            if piece.is_mapped {
                let unmapped = gpu.unmap(driver_addr + at, piece.size);
                piece.is_mapped = unmapped.is_err();
                first = first.and(unmapped);
            }
            if !piece.is_mapped {
                let destroyed = gpu.destroy(piece.handle);
                if destroyed.is_ok() {
                    gone.push(*at);
                }
                first = first.and(destroyed);
            }
        }
        for at in gone {
            self.pieces.remove(&at);
        }
        first
    }
}

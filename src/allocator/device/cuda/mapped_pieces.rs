//! Memory mapped into one reservation, granule by granule.

use std::collections::BTreeMap;

use super::driver::{CudaContext, CudaError, Handle};
use crate::base::units::MIB;

/// The driver reserves addresses and makes physical memory in multiples of this.
pub(super) const PAGE: u64 = 2 * MIB;

/// One piece of physical memory.
#[derive(Debug)]
struct PhysicalPiece {
    size: u64,
    handle: Handle,
    is_mapped: bool,
}

/// What is mapped, by its distance from where the reservation begins. A piece is forgotten once the driver
/// has taken it back, not before.
#[derive(Debug)]
pub(super) struct MappedPieces {
    granule: u64,
    pieces: BTreeMap<u64, PhysicalPiece>,
}

impl MappedPieces {
    /// Nothing yet; the range is cut at multiples of `granule` bytes, as PyTorch cuts it.
    pub(super) fn new(granule: u64) -> Self {
        Self { granule: granule.max(PAGE), pieces: BTreeMap::new() }
    }

    /// Maps `size` bytes at `offset` of the reservation at the driver's address `real`; all or nothing.
    pub(super) fn map(
        &mut self,
        gpu: &CudaContext,
        real: u64,
        offset: u64,
        size: u64,
    ) -> Result<(), CudaError> {
        let done = self.try_map(gpu, real, offset, offset + size);
        if done.is_err() {
            // That the driver does not take them back is worse than that there were too few.
            self.unmap(gpu, real, offset, offset + size)?;
        }
        done
    }

    fn try_map(
        &mut self,
        gpu: &CudaContext,
        real: u64,
        from: u64,
        to: u64,
    ) -> Result<(), CudaError> {
        let mut at = from;
        while at < to {
            let size = ((at / self.granule + 1) * self.granule).min(to) - at;
            let handle = gpu.create(size)?;
            self.pieces.insert(at, PhysicalPiece { size, handle, is_mapped: false });
            at += size;
        }
        for (at, piece) in self.pieces.range_mut(from..to) {
            gpu.map(real + at, piece.size, piece.handle)?;
            piece.is_mapped = true;
        }
        gpu.set_access(real + from, to - from)
    }

    /// Gives back what lies in `from..to`, all that can be.
    pub(super) fn unmap(
        &mut self,
        gpu: &CudaContext,
        real: u64,
        from: u64,
        to: u64,
    ) -> Result<(), CudaError> {
        let mut first = Ok(());
        let mut gone = Vec::new();
        for (at, piece) in self.pieces.range_mut(from..to) {
            if piece.is_mapped {
                let unmapped = gpu.unmap(real + at, piece.size);
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

//! The memory that the values of a file may take, in proportion to its size.
//!
//! Records of a snapshot go into columns, which take less memory than the file. Other containers take many times their
//! bytes in the file: a tuple of one byte takes 80. Snapshots have few of those.

use super::pickle::ErrorKind;
use crate::base::units::MIB;

/// Bytes of memory for each byte of the file.
const PER_RAW_BYTE: u64 = 4;
/// Bytes of memory for a file of any size.
const FREE_BYTES: u64 = 64 * MIB;
/// A container that is not a record: a place in a table that grows by doubling, and its own allocation.
pub(super) const CONTAINER_BYTES: u64 = 48 + 32;
/// An item of such a container, in a vector that grows by doubling.
pub(super) const ITEM_BYTES: u64 = 16;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MemoryBudget {
    pub(super) raw_bytes: u64,
    used_bytes: u64,
}

impl MemoryBudget {
    /// For `raw_bytes` of input.
    pub(super) fn new(raw_bytes: u64) -> Self {
        Self { raw_bytes, used_bytes: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), ErrorKind> {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        self.check(0)
    }

    /// # Errors
    /// If the containers and `others` bytes of other values exceed the budget.
    #[inline]
    pub(super) fn check(&self, others: u64) -> Result<(), ErrorKind> {
        let bytes = self.used_bytes.saturating_add(others);
        if bytes > FREE_BYTES.saturating_add(PER_RAW_BYTE.saturating_mul(self.raw_bytes)) {
            return Err(ErrorKind::TooMuchMemory { bytes, raw_bytes: self.raw_bytes });
        }
        Ok(())
    }
}

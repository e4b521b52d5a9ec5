//! The addresses that the recorded device has allocated.

use std::collections::BTreeMap;

/// Disjoint address ranges.
#[derive(Debug, Clone, Default)]
pub(super) struct AddressRanges(BTreeMap<u64, u64>);

impl AddressRanges {
    /// False if the range is empty, exceeds the address space or overlaps another.
    pub(super) fn insert(&mut self, addr: u64, size: u64) -> bool {
        // The caller reports either as a divergence.
        let Some(end) = addr.checked_add(size).filter(|end| *end > addr) else { return false };
        if self.0.range(..end).next_back().is_some_and(|(_, other_end)| *other_end > addr) {
            return false;
        }
        self.0.insert(addr, end);
        true
    }

    /// Removes a range, which may span several inserted ones or a part of one.
    pub(super) fn remove(&mut self, addr: u64, size: u64) {
        let end = addr.saturating_add(size);
        while let Some((&start, &other_end)) = self.0.range(..end).next_back()
            && other_end > addr
        {
            self.0.remove(&start);
            if other_end > end {
                self.0.insert(end, other_end);
            }
            if start < addr {
                self.0.insert(start, addr);
            }
        }
    }
}

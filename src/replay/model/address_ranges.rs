//! Which addresses the recorded device has given out.

use std::collections::BTreeMap;

/// Disjoint address ranges.
#[derive(Debug, Clone, Default)]
pub(super) struct AddressRanges(BTreeMap<u64, u64>);

impl AddressRanges {
    /// Takes a range; false when it is empty, leaves the address space or overlaps another.
    pub(super) fn insert(&mut self, addr: u64, size: u64) -> bool {
        let Some(end) = addr.checked_add(size).filter(|end| *end > addr) else { return false };
        if self.0.range(..end).next_back().is_some_and(|(_, taken)| *taken > addr) {
            return false;
        }
        self.0.insert(addr, end);
        true
    }

    /// Gives a range back, whatever ranges it was taken in.
    pub(super) fn remove(&mut self, addr: u64, size: u64) {
        let end = addr.saturating_add(size);
        while let Some((&from, &to)) = self.0.range(..end).next_back()
            && to > addr
        {
            self.0.remove(&from);
            if to > end {
                self.0.insert(end, to);
            }
            if from < addr {
                self.0.insert(from, addr);
            }
        }
    }
}

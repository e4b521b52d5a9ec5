//! When each block of a trace ends, and so which blocks are live at a position.

use super::live_set::Allocation;
use crate::base::ids::to_u32;
use crate::base::intern::SeededMap;
use crate::base::pages;
use crate::snapshot::{Action, Device, TraceEntry};
use crate::study::block_sizes::BlockSizes;

/// The end of a block that is live at the end of the trace.
const NEVER: u32 = u32::MAX;

/// The entry that ends each block of a trace: its free, or another allocation at its address.
#[derive(Default)]
pub(super) struct BlockEnds {
    /// By the entry that allocates the block; 0 for other entries.
    by_entry: Vec<u32>,
    /// Ends of blocks that are older than the trace, by address.
    older: SeededMap<u64, u32>,
}

impl BlockEnds {
    /// With room for a trace of `entries`.
    pub(super) fn with_room(entries: usize) -> Self {
        let mut ends = Self::default();
        pages::reserve(&mut ends.by_entry, entries);
        ends
    }

    /// Adds the next entry of the trace.
    pub(super) fn add_entry(&mut self, is_alloc: bool) {
        self.by_entry.push(if is_alloc { NEVER } else { 0 });
    }

    /// The block that entry `allocated_at` allocated ends at `entry`.
    pub(super) fn set(&mut self, allocated_at: u32, entry: u32) {
        self.by_entry[allocated_at as usize] = entry;
    }

    /// The block at `address` that is older than the trace ends at `entry`, unless it has ended.
    pub(super) fn set_older(&mut self, address: u64, entry: u32) {
        self.older.entry(address).or_insert(entry);
    }

    /// The end of the block at `address` that is older than the trace; `None` if it is live to the end.
    pub(super) fn older(&self, address: u64) -> Option<usize> {
        self.older.get(&address).map(|end| *end as usize)
    }

    /// The blocks that are live after `applied` entries of `trace`, those older than the trace first, with the sizes
    /// that they were allocated with.
    pub(super) fn live_after<'b>(
        &'b self,
        trace: Device<'b>,
        sizes: &'b BlockSizes,
        applied: usize,
    ) -> impl Iterator<Item = Allocation> + 'b {
        let older = sizes.initial.iter().filter_map(move |block| {
            let end = self.older.get(&block.addr).copied().unwrap_or(NEVER);
            (end as usize >= applied).then(|| Allocation {
                address: block.addr,
                bytes: block.size,
                requested_bytes: block.requested.min(block.size),
                extended_stack: block.context,
                allocated_at: None,
                freed_after: self.freed_after(trace, end),
            })
        });
        let entries = self.by_entry[..applied].iter().zip(0..);
        let allocated = entries.filter(move |(end, _)| **end as usize >= applied).map(move |(end, index)| {
            let TraceEntry { addr: address, size, extended_stack, .. } = trace.entry(index as usize);
            let bytes = sizes.allocated_bytes(index, size);
            let (requested_bytes, freed_after) = (size.min(bytes), self.freed_after(trace, *end));
            Allocation { address, bytes, requested_bytes, extended_stack, allocated_at: Some(index), freed_after }
        });
        older.chain(allocated)
    }

    /// The number of entries up to the free of a block that ends at entry `end`. If another allocation at its address
    /// ended it, the free of that one counts.
    fn freed_after(&self, trace: Device<'_>, mut end: u32) -> Option<u32> {
        while trace.action(end as usize)? == Action::Alloc {
            end = self.by_entry[end as usize];
        }
        Some(to_u32(end as usize + 1))
    }
}

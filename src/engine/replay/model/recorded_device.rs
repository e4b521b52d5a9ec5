//! The device of a recording: it grants and refuses memory as the recorded one did.

use std::collections::{BTreeMap, VecDeque};

use crate::allocator::device::{DeviceMemory, OutOfMemory, UNBOUNDED};
use crate::base::ids::PoolId;
use crate::replay::literal::Reservations;
use crate::snapshot::{Action, TraceEntry};

/// The base of reservations whose address is unknown, since nothing was ever mapped there.
const UNUSED_RESERVATION_BASE: u64 = 1 << 60;

/// Answers each operation from the moves recorded for it, in order. It grants growth that is the next move, and refuses
/// any other.
#[derive(Debug, Clone)]
pub(super) struct RecordedDevice<'a> {
    /// The recorded changes of reserved memory that are still expected, with their entry indexes.
    pub(super) moves: VecDeque<(usize, TraceEntry)>,
    /// Free bytes of the device at the last failure.
    pub(super) free_bytes: u64,
    capacity: Option<u64>,
    reservations: &'a Reservations,
    /// Existing reservations: base to size.
    pub(super) reserved: BTreeMap<u64, u64>,
    next_unused_base: u64,
    /// The operation: last entry, pool, stream, and whether it uses the small pool.
    pub(super) op: (usize, PoolId, u64, bool),
}

impl<'a> RecordedDevice<'a> {
    pub(super) fn new(capacity: Option<u64>, reservations: &'a Reservations) -> Self {
        Self {
            moves: VecDeque::new(),
            free_bytes: 0,
            capacity,
            reservations,
            reserved: BTreeMap::new(),
            next_unused_base: UNUSED_RESERVATION_BASE,
            op: (0, PoolId::default(), 0, false),
        }
    }

    /// The addresses of the whole segments that the operation released, in order.
    pub(super) fn released_segments(&self) -> Vec<u64> {
        let freed = self.moves.iter().filter(|(_, entry)| entry.action == Action::SegmentFree);
        freed.map(|(_, entry)| entry.addr).collect()
    }

    fn is_reserved(&self, addr: u64) -> bool {
        self.reserved.range(..=addr).next_back().is_some_and(|(base, size)| addr - base < *size)
    }

    /// The base of the next reservation: the next address that is mapped for the pool, stream and size class of this
    /// operation, outside all reservations. On a device of unknown size, a reservation is never full, so any address
    /// will do.
    fn next_base(&self) -> Option<u64> {
        let (last, pool, stream, is_small) = self.op;
        let first_entry = self.moves.front().map_or(last, |(entry_index, _)| *entry_index);
        let class = (pool, stream, is_small);
        self.reservations.next_mapped(first_entry, class, |addr| self.capacity.is_none() || !self.is_reserved(addr))
    }

    /// Performs the next move if it `is_expected`, and returns its address.
    fn take_move(&mut self, is_expected: impl Fn(&TraceEntry) -> bool) -> Option<u64> {
        let (_, entry) = self.moves.front().filter(|(_, entry)| is_expected(entry)).copied()?;
        self.moves.pop_front();
        Some(entry.addr)
    }
}

impl DeviceMemory for RecordedDevice<'_> {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        self.take_move(|entry| entry.action == Action::SegmentAlloc && entry.size == size).ok_or(OutOfMemory)
    }

    fn free(&mut self, _addr: u64, _size: u64) {
        self.take_move(|entry| entry.action == Action::SegmentFree);
    }

    fn reserve(&mut self, size: u64, _granule: u64) -> Result<u64, OutOfMemory> {
        let base = self.next_base().unwrap_or_else(|| {
            self.next_unused_base = self.next_unused_base.saturating_add(size);
            self.next_unused_base - size
        });
        self.reserved.insert(base, size);
        Ok(base)
    }

    fn release(&mut self, addr: u64, _size: u64) {
        self.reserved.remove(&addr);
    }

    fn map(&mut self, addr: u64, size: u64) -> Result<(), OutOfMemory> {
        let mapped = self.take_move(|entry| (entry.action, entry.addr, entry.size) == (Action::SegmentMap, addr, size));
        mapped.map(drop).ok_or(OutOfMemory)
    }

    fn unmap(&mut self, _addr: u64, _size: u64) {
        self.take_move(|entry| entry.action == Action::SegmentUnmap);
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn total_bytes(&self) -> u64 {
        self.capacity.unwrap_or(UNBOUNDED)
    }
}

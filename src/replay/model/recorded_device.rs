//! The device of a recording: it answers as the recorded one did.

use std::collections::BTreeMap;

use crate::allocator::device::{DeviceMemory, OutOfMemory, UNBOUNDED};
use crate::base::ids::PoolId;
use crate::replay::literal::Reservations;
use crate::snapshot::{Action, TraceEntry};

/// Where a reservation stands whose address the recording does not give, since nothing was ever
/// mapped there.
const UNUSED_RESERVATION_BASE: u64 = 1 << 60;

/// A recorded movement of memory.
#[derive(Debug, Clone, Copy)]
struct Move {
    entry_index: usize,
    action: Action,
    addr: u64,
    size: u64,
}

/// Answers one call from the memory movements that were recorded for it, in their order: growth is
/// granted when it is the next movement, else refused.
#[derive(Debug, Clone)]
pub(super) struct RecordedDevice<'a> {
    moves: Vec<Move>,
    next_move: usize,
    /// The device's free bytes, where the call failed.
    free_bytes: u64,
    capacity: Option<u64>,
    reservations: &'a Reservations,
    /// Reserved now, base to size.
    reserved: BTreeMap<u64, u64>,
    next_unused_base: u64,
    /// The call: its last row, its pool and stream, the half of the pool.
    op: (usize, PoolId, u64, bool),
}

impl<'a> RecordedDevice<'a> {
    pub(super) fn new(capacity: Option<u64>, reservations: &'a Reservations) -> Self {
        Self {
            moves: Vec::new(),
            next_move: 0,
            free_bytes: 0,
            capacity,
            reservations,
            reserved: BTreeMap::new(),
            next_unused_base: UNUSED_RESERVATION_BASE,
            op: (0, PoolId::default(), 0, false),
        }
    }

    /// Forgets the movements of the call before.
    pub(super) fn clear_moves(&mut self) {
        self.moves.clear();
        self.next_move = 0;
    }

    /// Says whose call this is, and at which row its entries end.
    #[inline]
    pub(super) fn set_op(&mut self, row: usize, pool: PoolId, stream: u64, is_small: bool) {
        self.op = (row, pool, stream, is_small);
    }

    /// A movement of the call.
    pub(super) fn expect_move(&mut self, row: usize, event: &TraceEntry) {
        self.moves.push(Move { entry_index: row, action: event.action, addr: event.addr, size: event.size });
    }

    /// The whole segments among them that were given back, in order.
    pub(super) fn released_segments(&self) -> Vec<u64> {
        let freed = self.moves.iter().filter(|m| m.action == Action::SegmentFree);
        freed.map(|m| m.addr).collect()
    }

    pub(super) fn set_free_bytes(&mut self, bytes: u64) {
        self.free_bytes = bytes;
    }

    /// The reservation was there before the recording.
    pub(super) fn add_reservation(&mut self, (base, size): (u64, u64)) {
        self.reserved.insert(base, size);
    }

    fn is_reserved(&self, addr: u64) -> bool {
        let below = self.reserved.range(..=addr).next_back();
        below.is_some_and(|(base, size)| addr - base < *size)
    }

    /// The next address mapped for the like of this call outside all reservations: a reservation shows
    /// only when it is first used. On a device of unknown size one is never full, and there is none of
    /// this kind when another is asked for.
    fn next_base(&self) -> Option<u64> {
        let (last, pool, stream, is_small) = self.op;
        let next = self.moves.get(self.next_move).map_or(last, |next| next.entry_index);
        let is_usable = |addr| self.capacity.is_none() || !self.is_reserved(addr);
        self.reservations.next_mapped(next, (pool, stream, is_small), is_usable)
    }

    fn peek_move(&self) -> Option<(Action, u64, u64)> {
        self.moves.get(self.next_move).map(|next| (next.action, next.addr, next.size))
    }
}

impl DeviceMemory for RecordedDevice<'_> {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        match self.peek_move() {
            Some((Action::SegmentAlloc, addr, recorded)) if recorded == size => {
                self.next_move += 1;
                Ok(addr)
            }
            _ => Err(OutOfMemory),
        }
    }

    fn free(&mut self, _addr: u64, _size: u64) {
        if matches!(self.peek_move(), Some((Action::SegmentFree, ..))) {
            self.next_move += 1;
        }
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
        match self.peek_move() {
            Some((Action::SegmentMap, at, recorded)) if at == addr && recorded == size => {
                self.next_move += 1;
                Ok(())
            }
            _ => Err(OutOfMemory),
        }
    }

    fn unmap(&mut self, _addr: u64, _size: u64) {
        if matches!(self.peek_move(), Some((Action::SegmentUnmap, ..))) {
            self.next_move += 1;
        }
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn total_bytes(&self) -> u64 {
        self.capacity.unwrap_or(UNBOUNDED)
    }
}

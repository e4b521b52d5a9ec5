//! From trace entries to the calls that caused them.
//!
//! A trace lists effects: one `malloc` may first complete frees, give segments back and take new ones,
//! and writes its own line last. What lies between two lines that name a call belongs to the later one,
//! unless its stack (or, where there is none, the room that the device had) shows that the program gave
//! memory back itself, with `empty_cache()` or by dropping a `MemPool`.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::segment_pools::SegmentPools;
use crate::ids::{PoolId, StackId};
use crate::snapshot::{Action, BlockState, Device, TraceEntry};

/// What the program did, with the rows of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    /// A request: the last entry says whether it was served. Where the trace does not tell whether
    /// memory was given back for it or before it, `boundary` is where it would begin.
    Malloc { rows: Range<usize>, pool: PoolId, boundary: Option<Boundary> },
    /// A free; `waits` when another stream still used the block.
    Free { rows: Range<usize>, waits: bool },
    /// Memory given back on request, with the private pools that gave some, in order; `is_default`
    /// says whether the default pool did.
    Release { rows: Range<usize>, pools: Vec<PoolId>, is_default: bool },
    /// An entry that is no work of the allocator.
    Note { row: usize },
}

/// A place before which memory may have been given back by another call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Boundary {
    /// The first row of the later call.
    pub(super) row: usize,
    /// Whether the device had room for the request without it.
    pub(super) is_likely: bool,
}

impl Call {
    /// Its entries.
    pub(super) fn rows(&self) -> Range<usize> {
        match self {
            Self::Malloc { rows, .. } | Self::Free { rows, .. } | Self::Release { rows, .. } => {
                rows.clone()
            }
            Self::Note { row } => *row..*row + 1,
        }
    }
}

/// Reads one device's trace call by call.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    device: Device<'a>,
    pub(super) pools: SegmentPools,
    next: usize,
    reserved: u64,
    /// The most that was ever reserved: the device holds at least that much.
    most_reserved: u64,
    /// The stack under which memory was taken from the device, by its first address.
    taken_under: FxHashMap<u64, StackId>,
    /// No free is seen to wait: see [`lacks_completions`].
    lacks_completions: bool,
}

/// Work of the allocator that belongs to a later entry.
fn is_prelude(action: Action) -> bool {
    moves_memory(action) || action == Action::FreeCompleted
}

/// Memory taken from the device or given back.
pub(super) fn moves_memory(action: Action) -> bool {
    is_growth(action) || is_shrinking(action)
}

pub(super) fn is_growth(action: Action) -> bool {
    matches!(action, Action::SegmentAlloc | Action::SegmentMap)
}

pub(super) fn is_shrinking(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}

impl<'a> Calls<'a> {
    /// The calls of `device`, which holds `reserved` bytes before the first.
    pub(super) fn new(device: Device<'a>, reserved: u64) -> Self {
        let (mut now, mut most_reserved) = (reserved, reserved);
        for index in 0..device.len() {
            if device.action(index).is_some_and(moves_memory)
                && let Some(event) = device.entry(index)
            {
                now = after(now, &event);
                most_reserved = most_reserved.max(now);
            }
        }
        Self {
            device,
            pools: SegmentPools::new(device),
            next: 0,
            reserved,
            most_reserved,
            taken_under: FxHashMap::default(),
            lacks_completions: lacks_completions(device),
        }
    }

    fn action(&self, row: usize) -> Option<Action> {
        self.device.action(row)
    }

    fn event(&self, row: usize) -> Option<TraceEntry> {
        self.device.entry(row)
    }

    /// Where the part of `rows` that belongs to its last entry, a request, begins by its stack.
    fn own_part(&self, rows: &Range<usize>) -> usize {
        let last = rows.end - 1;
        let stack_of = |row: usize| self.event(row).map_or(StackId::default(), |e| e.stack);
        let own = stack_of(last);
        if own == StackId::default() {
            return rows.start;
        }
        let is_foreign = |row: &usize| {
            let stack = stack_of(*row);
            stack != StackId::default() && stack != own
        };
        (rows.start..last).rev().find(is_foreign).map_or(rows.start, |row| row + 1)
    }

    /// Where another call may have ended within `rows`, for lack of stacks.
    fn boundary(&self, rows: &Range<usize>) -> Option<Boundary> {
        let last = rows.end - 1;
        let (mut unknown, mut grown) = (None, 0u64);
        for row in rows.start..last {
            let event = self.event(row)?;
            if is_shrinking(event.action) && event.stack == StackId::default() {
                unknown = Some(row + 1);
            } else if is_growth(event.action) {
                grown = grown.saturating_add(event.size);
            }
        }
        let served = self.action(last) == Some(Action::Alloc);
        let had_room = self.reserved.saturating_add(grown) <= self.most_reserved;
        unknown.map(|row| Boundary { row, is_likely: served && (grown == 0 || had_room) })
    }

    /// The first call in `rows`, all of it memory given back: as long as it has one stack.
    fn release(&mut self, rows: Range<usize>) -> Call {
        let (mut pools, mut is_default) = (Vec::new(), false);
        let mut end = rows.start;
        let mut stack = None;
        for row in rows {
            let Some(event) = self.event(row) else { break };
            // Recorded with context='alloc', memory is given back under the stack that took it, if any.
            let is_told = self.taken_under.get(&event.addr) != Some(&event.stack);
            let told = if is_told { event.stack } else { StackId::default() };
            if stack.is_some_and(|stack| stack != told) {
                break;
            }
            stack = Some(told);
            end = row + 1;
            if is_shrinking(event.action) {
                let pool = self.pools.of(&event);
                if pool == PoolId::default() {
                    is_default = true;
                } else if !pools.contains(&pool) {
                    pools.push(pool);
                }
            }
        }
        Call::Release { rows: self.next..end.max(self.next + 1), pools, is_default }
    }

    fn pass(&mut self, rows: Range<usize>) {
        for row in rows.clone() {
            if self.action(row).is_some_and(moves_memory)
                && let Some(event) = self.event(row)
            {
                self.reserved = after(self.reserved, &event);
                self.pools.apply(row, &event);
                if is_growth(event.action) && event.stack != StackId::default() {
                    self.taken_under.insert(event.addr, event.stack);
                }
            }
        }
        self.next = rows.end;
    }
}

/// Whether the completions of frees were left out of the trace of `device`: none is there, though more
/// blocks were freed than wait in the end.
pub(super) fn lacks_completions(device: Device<'_>) -> bool {
    let mut freed = 0;
    for index in 0..device.len() {
        match device.action(index) {
            Some(Action::FreeCompleted) => return false,
            Some(Action::FreeRequested) => freed += 1,
            _ => {}
        }
    }
    freed > device.blocks().filter(|block| block.state == BlockState::ActivePendingFree).count()
}

/// Whether the block that is freed in entry `index` of the trace is free again in the next one, by the
/// same call: one stack. A free that had to wait is completed by a later call, with that call's stack.
pub fn is_completed_at_once(device: Device<'_>, index: usize) -> bool {
    device.action(index) == Some(Action::FreeRequested)
        && device.action(index + 1) == Some(Action::FreeCompleted)
        && device
            .entry(index)
            .zip(device.entry(index + 1))
            .is_some_and(|(free, next)| free.addr == next.addr && free.stack == next.stack)
}

/// What is reserved after `event`, where `reserved` was before.
fn after(reserved: u64, event: &TraceEntry) -> u64 {
    match event.action {
        Action::SegmentAlloc | Action::SegmentMap => reserved.saturating_add(event.size),
        Action::SegmentFree | Action::SegmentUnmap => reserved.saturating_sub(event.size),
        _ => reserved,
    }
}

impl Iterator for Calls<'_> {
    type Item = Call;

    #[inline]
    fn next(&mut self) -> Option<Call> {
        let first = self.next;
        let action = self.action(first)?;
        match action {
            Action::FreeRequested => {
                let follows = is_completed_at_once(self.device, first);
                let rows = first..first + 1 + usize::from(follows);
                self.next = rows.end;
                return Some(Call::Free { rows, waits: !follows && !self.lacks_completions });
            }
            Action::Snapshot | Action::Other => {
                self.next = first + 1;
                return Some(Call::Note { row: first });
            }
            _ => {}
        }
        let mut last = first;
        while self.action(last).is_some_and(is_prelude) {
            last += 1;
        }
        let call = if matches!(self.action(last), Some(Action::Alloc | Action::Oom)) {
            let rows = first..last + 1;
            let own = if first == last { first } else { self.own_part(&rows) };
            if own > first {
                self.release(first..own)
            } else {
                let boundary = if first == last { None } else { self.boundary(&rows) };
                self.pass(first..last);
                let pool = self.pools.of(&self.event(last)?);
                Call::Malloc { rows, pool, boundary }
            }
        } else {
            self.release(first..last)
        };
        self.pass(call.rows());
        Some(call)
    }
}

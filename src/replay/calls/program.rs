//! What a recorded program did, as calls that name blocks by number: read from the trace once, to be
//! made to the model as often as one likes.

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::allocator::conf::Settings;
use crate::allocator::{Behaviour, HeldSegment, Resident, round_size};
use crate::base::ids::{PoolId, StackId, row};
use crate::replay::facts::DEFAULT_STREAM;
use crate::snapshot::{BlockState, Device};

/// The calls of one device's trace, and what the allocator held before the first.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    pub(crate) device: Device<'a>,
    pub(crate) held: Vec<HeldSegment>,
    /// In address order; the first slots are theirs.
    pub(crate) residents: Vec<Resident>,
    pub(crate) operations: Vec<Operation>,
    /// Slots of frees in the order in which they were completed.
    pub(crate) completed: Vec<u32>,
    /// Private pools that gave memory back.
    pub(crate) pools: Vec<PoolId>,
    /// How many slots there are: blocks that the program holds at once.
    pub(crate) slots: usize,
}

/// A call, with the index in the device's trace of the last entry that it wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) at: u32,
    pub(crate) kind: OperationKind,
}

/// A part of a list of the program's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ListRange {
    pub(super) first: u32,
    pub(super) count: u32,
}

impl ListRange {
    /// The places in the list.
    pub(super) fn places(self) -> Range<usize> {
        let first = self.first as usize;
        first..first + self.count as usize
    }

    pub(crate) fn of<T>(self, list: &[T]) -> &[T] {
        &list[self.places()]
    }
}

/// What was called. A slot is where the program keeps a block; it serves again once that is freed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OperationKind {
    /// A request; it has no slot if it failed when it was recorded.
    Malloc {
        size: u64,
        stream: u64,
        pool: PoolId,
        context: StackId,
        slot: Option<u32>,
        completions: ListRange,
    },
    /// A free; `waits` when another stream still used the block.
    Free { slot: u32, waits: bool, context: StackId },
    /// Memory given back on request.
    Release { scope: ReleaseScope, context: StackId, completions: ListRange },
    /// The last user of a private pool is gone: its memory can be given back.
    Freeable(PoolId),
    /// The program asked for a snapshot.
    Snapshot(PoolId),
    /// Memory for the time of one call of a library, which may do without where there is none.
    Workspace { size: u64, stream: u64, is_needed: bool },
}

/// A request, with what it comes to.
struct Asked {
    /// The index of its entry.
    at: u32,
    /// Its bytes, rounded.
    size: u64,
    /// What the program holds with it.
    held: u64,
    /// Whether it was served when it was recorded.
    was_served: bool,
}

/// What a release is of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReleaseScope {
    /// Everything.
    All,
    /// These private pools.
    Pools(ListRange),
    /// Nothing: frees were completed, and no more shows.
    Nothing,
}

impl Program<'_> {
    /// The same program, beginning with a pool that holds nothing: what it held it first asks for, in an
    /// order that does not depend on where it lay. The outcome follows from its calls and the settings
    /// alone, whatever earlier work left in the pool.
    #[must_use]
    pub fn from_empty(mut self) -> Self {
        let mut order: Vec<(usize, u64, usize)> = Vec::with_capacity(self.residents.len());
        let ends = self.ends_of_residents();
        for (index, (resident, end)) in self.residents.iter().zip(ends).enumerate() {
            order.push((end, resident.requested, index));
        }
        // Those that stay longest, then the largest. Of one pool and stream, blocks that are alike in
        // both are one another's equals.
        order.sort_by_key(|(end, requested, index)| (Reverse(*end), Reverse(*requested), *index));
        let mut operations = Vec::with_capacity(order.len() + self.operations.len());
        for (.., index) in order {
            let resident = &self.residents[index];
            if resident.requested == 0 {
                continue;
            }
            let after = self.held.partition_point(|held| held.addr <= resident.addr);
            let Some(held) = after.checked_sub(1).and_then(|at| self.held.get(at)) else {
                continue;
            };
            let (slot, context) = (row(index), resident.context);
            let (stream, pool, size) = (held.stream, held.pool, resident.requested);
            let completions = ListRange::default();
            let kind = OperationKind::Malloc {
                size,
                stream,
                pool,
                context,
                slot: Some(slot),
                completions,
            };
            operations.push(Operation { at: 0, kind });
            if resident.state == BlockState::ActivePendingFree {
                operations.push(Operation {
                    at: 0,
                    kind: OperationKind::Free { slot, waits: true, context },
                });
            }
        }
        operations.append(&mut self.operations);
        Self { held: Vec::new(), residents: Vec::new(), operations, ..self }
    }

    /// Every request in order: the index of its entry, its stack and its bytes.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (usize, StackId, u64)> + '_ {
        self.operations.iter().filter_map(|operation| match operation.kind {
            OperationKind::Malloc { size, context, .. } => {
                Some((operation.at as usize, context, size))
            }
            _ => None,
        })
    }

    /// Every free of a block that was asked for: the row of its request, and how many had been made by then.
    pub(crate) fn frees(&self) -> Vec<(usize, usize)> {
        let mut rows: Vec<Option<usize>> = vec![None; self.slots];
        let (mut made, mut frees) = (0, Vec::new());
        for operation in &self.operations {
            match operation.kind {
                OperationKind::Malloc { slot, .. } => {
                    if let Some(slot) = slot {
                        rows[slot as usize] = Some(made);
                    }
                    made += 1;
                }
                OperationKind::Free { slot, .. } => {
                    frees.extend(rows[slot as usize].take().map(|row| (row, made)));
                }
                _ => {}
            }
        }
        frees
    }

    /// The same calls with other bytes: of each request in order, and of each block that was held before. Where
    /// these are others than recorded, the program asks for them first, as in [`Self::from_empty`]: where they
    /// would have lain, no recording says.
    #[must_use]
    pub(crate) fn resized(&self, requests: &[u64], held: &[u64]) -> Self {
        let mut resized = self.clone();
        let mut bytes = requests.iter();
        for operation in &mut resized.operations {
            if let OperationKind::Malloc { size, .. } = &mut operation.kind {
                *size = bytes.next().copied().unwrap_or(*size);
            }
        }
        let is_as_held =
            self.residents.iter().map(|resident| resident.requested).eq(held.iter().copied());
        if is_as_held {
            return resized;
        }
        for (resident, bytes) in resized.residents.iter_mut().zip(held) {
            resident.requested = *bytes;
        }
        resized.from_empty()
    }

    /// The operation that frees each resident, or completes its free; the end of time for those that stay.
    fn ends_of_residents(&self) -> Vec<usize> {
        let mut ends = vec![usize::MAX; self.residents.len()];
        let mut ends_at = |slot: u32, at: usize| {
            if let Some(end) = ends.get_mut(slot as usize) {
                *end = at.min(*end);
            }
        };
        for (at, operation) in self.operations.iter().enumerate() {
            match operation.kind {
                OperationKind::Free { slot, .. } => ends_at(slot, at),
                OperationKind::Malloc { completions, .. }
                | OperationKind::Release { completions, .. } => {
                    completions.of(&self.completed).iter().for_each(|slot| ends_at(*slot, at));
                }
                OperationKind::Freeable(_)
                | OperationKind::Snapshot(_)
                | OperationKind::Workspace { .. } => {}
            }
        }
        ends
    }

    /// Whether a request for `pool` on `stream` was made in a graph capture, not in `use_mem_pool`. The
    /// pool that a capture makes has an id that ends in 0, and nothing is captured on the default stream;
    /// otherwise no trace tells.
    pub(crate) fn is_in_capture(&self, pool: PoolId, stream: u64) -> Option<bool> {
        match self.device.snapshot().pools.get(pool) {
            [_, 0] => Some(true),
            _ if stream == DEFAULT_STREAM => Some(false),
            _ => None,
        }
    }

    /// Whether what a request may give back turns, in release `minor`, on whether it was made in a graph
    /// capture, and that is not known of some request.
    pub fn leaves_captures_open(&self, minor: u32) -> bool {
        Behaviour::of(minor).private_pools_as_captures
            && self.operations.iter().any(|operation| match operation.kind {
                OperationKind::Malloc { pool, stream, .. } => {
                    self.is_in_capture(pool, stream).is_none()
                }
                _ => false,
            })
    }

    /// The slot of the resident at `addr`.
    pub(crate) fn slot_of_resident(&self, addr: u64) -> Option<u32> {
        let found = self.residents.binary_search_by_key(&addr, |resident| resident.addr);
        found.ok().map(row)
    }

    /// The most that the program held at once, each request rounded as under `settings`; a request that
    /// failed counts at its moment. Nothing less than that serves them all.
    pub fn most_held(&self, settings: &Settings) -> u64 {
        self.walk(settings, |_| {})
    }

    /// The first request with which the program holds more than `bytes`, each rounded as under `settings`: the
    /// index of its entry, and its own bytes.
    pub fn first_beyond(&self, bytes: u64, settings: &Settings) -> Option<(usize, u64)> {
        let mut first = None;
        self.walk(settings, |request| {
            if first.is_none() && request.held > bytes {
                first = Some((request.at as usize, request.size));
            }
        });
        first
    }

    /// Of each request that failed, the index of its entry, and what the program held then and asked
    /// for, in bytes rounded as under `settings`.
    pub fn needed(&self, settings: &Settings) -> Vec<(usize, u64)> {
        let mut needed = Vec::new();
        self.walk(settings, |request| {
            if !request.was_served {
                needed.push((request.at as usize, request.held));
            }
        });
        needed
    }

    /// Shows `see` the entry of every request, and what the program held with it, each request rounded as under
    /// `settings`.
    pub(super) fn each_request(&self, settings: &Settings, mut see: impl FnMut(usize, u64)) {
        self.walk(settings, |request| see(request.at as usize, request.held));
    }

    /// The most that was held; `see` is shown every request.
    fn walk(&self, settings: &Settings, mut see: impl FnMut(&Asked)) -> u64 {
        let mut sizes = vec![0; self.slots];
        for (size, resident) in sizes.iter_mut().zip(&self.residents) {
            *size = if resident.state == BlockState::ActivePendingFree { 0 } else { resident.size };
        }
        let mut held = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
        let mut most = held;
        for operation in &self.operations {
            match operation.kind {
                OperationKind::Malloc { size, slot, .. } => {
                    let size = round_size(size, settings);
                    let with_it = held.saturating_add(size);
                    most = most.max(with_it);
                    let was_served = slot.is_some();
                    see(&Asked { at: operation.at, size, held: with_it, was_served });
                    if let Some(slot) = slot {
                        sizes[slot as usize] = size;
                        held = with_it;
                    }
                }
                // What did not fit into the sum cannot be taken out of it.
                OperationKind::Free { slot, .. } => {
                    held = held.saturating_sub(sizes[slot as usize]);
                }
                OperationKind::Release { .. }
                | OperationKind::Freeable(_)
                | OperationKind::Snapshot(_)
                | OperationKind::Workspace { .. } => {}
            }
        }
        most
    }

    /// How many requests before that of entry `failed`, the last, were made one after the other by stacks that
    /// `are_alike`, and the bytes of those that were not freed since.
    pub fn run_before(&self, failed: usize, are_alike: impl Fn(StackId) -> bool) -> (usize, u64) {
        let (mut requests, mut bytes) = (0, 0u64);
        let mut freed = FxHashSet::default();
        for operation in self.operations.iter().rev().skip_while(|o| o.at as usize >= failed) {
            match operation.kind {
                OperationKind::Malloc { size, context, slot: Some(slot), .. } => {
                    if !are_alike(context) {
                        break;
                    }
                    requests += 1;
                    if !freed.remove(&slot) {
                        bytes = bytes.saturating_add(round_size(size, &Settings::default()));
                    }
                }
                OperationKind::Free { slot, .. } => {
                    freed.insert(slot);
                }
                _ => {}
            }
        }
        (requests, bytes)
    }

    /// The most that was asked for at once, in bytes.
    pub fn largest_request(&self) -> u64 {
        let size = |operation: &Operation| match operation.kind {
            OperationKind::Malloc { size, .. } => size,
            _ => 0,
        };
        self.operations.iter().map(size).max().unwrap_or(0)
    }

    /// When the call of an operation was recorded, in microseconds; 0 where that is not known.
    pub(crate) fn time_of(&self, operation: &Operation) -> u64 {
        self.device.time_us(operation.at as usize).unwrap_or(0)
    }
}

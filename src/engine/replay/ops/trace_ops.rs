//! Groups trace entries by the operation that caused them.
//!
//! Entries between two that name an operation belong to the later one, unless their stack shows that the program
//! released memory itself, with `empty_cache()` or by dropping a `MemPool`. Without stacks, the room that the device
//! had decides.

use std::ops::Range;

use crate::base::ids::{PoolId, StackId};
use crate::base::intern::SeededMap;
use crate::replay::literal::{SegmentPools, is_completed_at_once, lacks_completions};
use crate::snapshot::{Action, Device};

/// An operation of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOp {
    /// The indexes of the trace entries that it wrote.
    pub entries: Range<usize>,
    pub kind: TraceOpKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceOpKind {
    /// A request. Its last entry says whether it was served. `boundary` is set where the entries before the last one
    /// may belong to an earlier release.
    Alloc { pool: PoolId, boundary: Option<Boundary> },
    /// A free. It is pending if another stream still uses the block.
    Free { is_pending: bool },
    /// Cached memory released on request: `empty_cache()`, or a `MemPool` that was dropped. `pools` are the private
    /// pools that released memory, in order. With `is_all_pools` the program asked all pools, even if some had nothing
    /// to release.
    Release { pools: Vec<PoolId>, is_all_pools: bool, stack: StackId },
    /// An entry that is no work of the allocator.
    Marker,
}

/// The entry at which a request begins if the entries before it belong to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    pub(crate) first_entry: usize,
    /// The device had room for the request without the release.
    pub(crate) is_likely: bool,
}

/// Reads one device's trace operation by operation.
#[derive(Debug, Clone)]
pub struct TraceOps<'a> {
    device: Device<'a>,
    pub(crate) pools: SegmentPools,
    next_entry: usize,
    reserved: u64,
    /// Peak of the whole trace: a lower bound of the device's capacity.
    peak_reserved: u64,
    /// The stack under which memory was taken from the device, by its first address.
    alloc_stacks: SeededMap<u64, StackId>,
    /// No free can be seen to be pending: see [`lacks_completions`].
    lacks_completions: bool,
}

/// Whether an entry is work of the allocator for the operation of a later entry.
fn is_prelude(action: Action) -> bool {
    action.changes_reserved() || action == Action::FreeCompleted
}

impl<'a> TraceOps<'a> {
    /// The operations of `device`, which holds `reserved` bytes before the first.
    pub(crate) fn new(device: Device<'a>, reserved: u64) -> Self {
        let (mut now, mut peak_reserved) = (reserved, reserved);
        for (_, entry) in device.entries_where(Action::changes_reserved) {
            now = entry.reserved_after(now);
            peak_reserved = peak_reserved.max(now);
        }
        Self {
            device,
            pools: SegmentPools::new(device),
            next_entry: 0,
            reserved,
            peak_reserved,
            alloc_stacks: SeededMap::default(),
            lacks_completions: lacks_completions(device),
        }
    }

    /// The entry with which the next operation begins.
    pub(crate) fn position(&self) -> usize {
        self.next_entry
    }

    /// Passes operations for which the allocator did no other work.
    pub(super) fn skip_simple_ops(&mut self) {
        loop {
            self.next_entry += match self.device.action(self.next_entry) {
                Some(Action::Alloc | Action::Oom | Action::Snapshot | Action::Other) => 1,
                Some(Action::FreeRequested) => 1 + usize::from(is_completed_at_once(self.device, self.next_entry)),
                _ => return,
            };
        }
    }

    /// The stack of an entry of the trace.
    fn stack_of(&self, index: usize) -> StackId {
        self.device.stack(index).unwrap_or_default()
    }

    /// The entry at which the request that ends `entries` begins, according to the stacks.
    fn request_start(&self, entries: &Range<usize>) -> usize {
        let last = entries.end - 1;
        let request_stack = self.stack_of(last);
        let foreign = (entries.start..last).rev().find(|index| {
            let stack = self.stack_of(*index);
            if request_stack == StackId::default() {
                // A request without a stack releases memory under the stack that took it.
                return stack != request_stack && self.is_requested_release(*index, stack);
            }
            stack != StackId::default() && stack != request_stack
        });
        let Some(foreign) = foreign else {
            return entries.start; // all entries belong to the request
        };
        let mut request_entries = foreign + 1..last;
        if self.is_empty_cache_stack(self.stack_of(foreign)) {
            // Up to PyTorch 2.2, segments that `empty_cache` releases have no stack.
            let first_other = request_entries.find(|index| {
                !self.device.action(*index).is_some_and(Action::is_shrink)
                    || self.stack_of(*index) != StackId::default()
            });
            request_entries.start = first_other.unwrap_or(last);
        }
        request_entries.start
    }

    /// Whether the program itself requested the release in entry `index`, under `stack`.
    fn is_requested_release(&self, index: usize, stack: StackId) -> bool {
        let entry = self.device.entry(index);
        entry.action.is_shrink()
            && match self.alloc_stacks.get(&entry.addr) {
                Some(alloc_stack) if entry.action == Action::SegmentFree => *alloc_stack != stack,
                _ => self.is_empty_cache_stack(stack),
            }
    }

    /// Whether the innermost Python function of `stack` is `empty_cache`.
    fn is_empty_cache_stack(&self, stack: StackId) -> bool {
        let snapshot = self.device.snapshot();
        let mut frames = snapshot.stacks.frames(stack).iter().map(|frame| snapshot.stacks.frame(frame));
        let python = frames.find(|frame| snapshot.text(frame.file).strip_suffix(".py").is_some());
        python.is_some_and(|frame| snapshot.text(frame.name) == "empty_cache")
    }

    /// Where an earlier operation may end within `entries` that have no stacks.
    fn find_boundary(&self, entries: &Range<usize>) -> Option<Boundary> {
        let last = entries.end - 1;
        let (mut first_entry, mut grown) = (None, 0u64);
        for index in entries.start..last {
            let entry = self.device.entry(index);
            if entry.action.is_shrink() && entry.stack == StackId::default() {
                first_entry = Some(index + 1);
            } else if entry.action.is_growth() {
                grown = grown.saturating_add(entry.size);
            }
        }
        let had_room = self.reserved.saturating_add(grown) <= self.peak_reserved;
        let is_likely = self.device.action(last) == Some(Action::Alloc) && (grown == 0 || had_room);
        first_entry.map(|first_entry| Boundary { first_entry, is_likely })
    }

    /// The first release in `entries`, all of which belong to releases. It ends where another stack begins.
    fn read_release(&mut self, entries: Range<usize>) -> TraceOp {
        let (mut pools, mut completed, mut is_all_pools) = (Vec::new(), Vec::new(), false);
        let mut end = entries.start;
        let mut stack = StackId::default();
        for index in entries {
            let entry = self.device.entry(index);
            // With context='alloc' PyTorch records a release under the stack that took the memory, if any.
            let is_own_stack = self.alloc_stacks.get(&entry.addr) != Some(&entry.stack);
            let entry_stack = if is_own_stack { entry.stack } else { StackId::default() };
            // Up to PyTorch 2.2, only the completions before the release have a stack.
            if entry_stack != StackId::default() {
                if stack != StackId::default() && stack != entry_stack {
                    break;
                }
                stack = entry_stack;
            }
            end = index + 1;
            let pool = self.pools.pool_of(&entry);
            if entry.action.is_shrink() {
                if pool == PoolId::default() {
                    is_all_pools = true;
                } else if !pools.contains(&pool) {
                    pools.push(pool);
                }
            } else if entry.action == Action::FreeCompleted && completed.last() != Some(&pool) {
                completed.push(pool);
            }
        }
        // The release of one pool waits for blocks of that pool only.
        is_all_pools |= self.is_empty_cache_stack(stack)
            || (!pools.is_empty() && completed.iter().any(|pool| !pools.contains(pool)));
        let entries = self.next_entry..end.max(self.next_entry + 1);
        TraceOp { entries, kind: TraceOpKind::Release { pools, is_all_pools, stack } }
    }

    fn advance_past(&mut self, entries: Range<usize>) {
        for index in entries.clone() {
            if self.device.action(index).is_some_and(Action::changes_reserved) {
                let entry = self.device.entry(index);
                self.reserved = entry.reserved_after(self.reserved);
                self.pools.apply_entry(index, &entry);
                if entry.action.is_growth() && entry.stack != StackId::default() {
                    self.alloc_stacks.insert(entry.addr, entry.stack);
                }
            }
        }
        self.next_entry = entries.end;
    }
}

impl Iterator for TraceOps<'_> {
    type Item = TraceOp;

    #[inline]
    fn next(&mut self) -> Option<TraceOp> {
        let first = self.next_entry;
        match self.device.action(first)? {
            Action::FreeRequested => {
                let is_completed = is_completed_at_once(self.device, first);
                let entries = first..first + 1 + usize::from(is_completed);
                self.next_entry = entries.end;
                let is_pending = !is_completed && !self.lacks_completions;
                return Some(TraceOp { entries, kind: TraceOpKind::Free { is_pending } });
            }
            Action::Snapshot | Action::Other => {
                self.next_entry = first + 1;
                return Some(TraceOp { entries: first..first + 1, kind: TraceOpKind::Marker });
            }
            _ => {}
        }
        let mut last = first;
        while self.device.action(last).is_some_and(is_prelude) {
            last += 1;
        }
        let op = if matches!(self.device.action(last), Some(Action::Alloc | Action::Oom)) {
            let entries = first..last + 1;
            let start = if first == last { first } else { self.request_start(&entries) };
            if start > first {
                self.read_release(first..start)
            } else {
                let boundary = if first == last { None } else { self.find_boundary(&entries) };
                self.advance_past(first..last);
                let pool = self.pools.pool_of(&self.device.entry(last));
                TraceOp { entries, kind: TraceOpKind::Alloc { pool, boundary } }
            }
        } else {
            self.read_release(first..last)
        };
        self.advance_past(op.entries.clone());
        Some(op)
    }
}

//! A recorded program as operations on numbered slots instead of addresses. Read once from the trace, it can
//! be performed on the allocator model any number of times.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::allocator::conf::Settings;
use crate::allocator::releases::{Rule, has_rule};
use crate::allocator::{BlockView, DeviceRange, InitialSegment, round_size};
use crate::base::ids::{PoolId, StackId, to_u32};
use crate::replay::literal::DEFAULT_STREAM;
use crate::snapshot::{BlockState, Device, Workspace};

/// The operations of one device's trace, and the memory that the allocator held before the first.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    pub device: Device<'a>,
    pub initial_segments: Vec<InitialSegment>,
    /// In address order; block `i` keeps slot `i`.
    pub initial_blocks: Vec<BlockView>,
    pub operations: Vec<Operation>,
    /// The slots of pending frees, in the order in which they were completed.
    pub completed: Vec<u32>,
    /// The private pools of each [`ReleaseScope::Pools`], one after the other.
    pub released_pools: Vec<PoolId>,
    /// A slot is reused once its block is free.
    pub slot_count: usize,
}

/// An operation, with the last entry that it wrote.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub entry_index: u32,
    pub kind: OperationKind,
}

/// A range of [`Program::completed`] or [`Program::released_pools`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ListRange {
    pub start: u32,
    pub len: u32,
}

impl ListRange {
    pub fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }

    pub(crate) fn slice<T>(self, list: &[T]) -> &[T] {
        &list[self.range()]
    }
}

#[derive(Debug, Clone, Copy)]
pub enum OperationKind {
    /// A request. It has no slot if it failed when it was recorded.
    Alloc { size: u64, stream: u64, pool: PoolId, context: StackId, slot: Option<u32>, completions: ListRange },
    /// A free. It is pending if another stream still uses the block.
    Free { slot: u32, is_pending: bool, context: StackId },
    /// Cached memory released on request.
    Release { scope: ReleaseScope, context: StackId, completions: ListRange },
    /// The last user of a private pool is gone: its memory can be released from here on.
    Freeable(PoolId),
    /// The program took a snapshot.
    Snapshot(PoolId),
    /// Memory that a library allocates and frees within one call. Unless it `is_needed`, the library falls back to a
    /// plan without it.
    Workspace { size: u64, stream: u64, is_needed: bool },
}

/// A request, and what the program holds with it.
#[derive(Debug, Clone, Copy)]
pub struct LiveRequest {
    pub entry_index: u32,
    /// Rounded.
    pub size: u64,
    /// All live blocks and this request, rounded.
    pub live_bytes: u64,
    /// When it was recorded.
    pub was_served: bool,
}

/// Which pools a release empties.
#[derive(Debug, Clone, Copy)]
pub enum ReleaseScope {
    All,
    /// Private pools.
    Pools(ListRange),
    /// None: the trace shows completed frees and nothing else.
    CompletionsOnly,
}

/// Requests to come that take more memory on a GPU: recorded bytes and bytes there.
type Growing = VecDeque<(u64, u64)>;

impl Program<'_> {
    /// The same program on an empty allocator. It first allocates its initial blocks, in an order that does not depend
    /// on their addresses, so the outcome follows from its operations and the settings alone.
    #[must_use]
    pub fn with_empty_start(mut self) -> Self {
        let ends = self.initial_block_ends();
        let mut order: Vec<usize> = (0..ends.len()).collect();
        // The blocks that live longest come first, then the largest. Within a pool and stream, blocks equal in both are
        // interchangeable.
        order.sort_by_key(|index| Reverse((ends[*index], self.initial_blocks[*index].requested)));
        let mut operations = Vec::with_capacity(order.len() + self.operations.len());
        for index in order {
            let BlockView { addr, requested: size, state, context, .. } = self.initial_blocks[index];
            if size == 0 {
                continue;
            }
            let after = self.initial_segments.partition_point(|segment| segment.range.addr <= addr);
            // A block below every segment contradicts the file; the allocator model does not place it either.
            let Some(segment) = after.checked_sub(1).and_then(|i| self.initial_segments.get(i)) else {
                continue;
            };
            let DeviceRange { stream, pool, .. } = segment.range;
            let (slot, completions) = (to_u32(index), ListRange::default());
            let alloc = OperationKind::Alloc { size, stream, pool, context, slot: Some(slot), completions };
            operations.push(Operation { entry_index: 0, kind: alloc });
            if state == BlockState::ActivePendingFree {
                let free = OperationKind::Free { slot, is_pending: true, context };
                operations.push(Operation { entry_index: 0, kind: free });
            }
        }
        operations.append(&mut self.operations);
        Self { initial_segments: Vec::new(), initial_blocks: Vec::new(), operations, ..self }
    }

    /// The operation that frees each initial block or completes its free; `usize::MAX` if it stays.
    fn initial_block_ends(&self) -> Vec<usize> {
        let mut ends = vec![usize::MAX; self.initial_blocks.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            let freed = match &operation.kind {
                OperationKind::Free { slot, .. } => std::slice::from_ref(slot),
                OperationKind::Alloc { completions, .. } | OperationKind::Release { completions, .. } => {
                    completions.slice(&self.completed)
                }
                OperationKind::Freeable(_) | OperationKind::Snapshot(_) | OperationKind::Workspace { .. } => &[],
            };
            for slot in freed {
                // Later slots are not those of initial blocks.
                if let Some(end) = ends.get_mut(*slot as usize) {
                    *end = index.min(*end);
                }
            }
        }
        ends
    }

    /// Whether a request for `pool` on `stream` was made in a graph capture rather than in `use_mem_pool`; `None` if
    /// the trace does not show it. A capture's own pool has an id that ends in 0, and the default stream cannot be
    /// captured.
    pub(crate) fn is_in_capture(&self, pool: PoolId, stream: u64) -> Option<bool> {
        match self.device.snapshot().pools.get(pool) {
            [_, 0] => Some(true),
            _ if stream == DEFAULT_STREAM => Some(false),
            _ => None,
        }
    }

    /// Whether PyTorch 2.`minor` treats requests in a graph capture differently, and the trace does not show for some
    /// request whether it was in one.
    pub fn has_unknown_captures(&self, minor: u32) -> bool {
        !has_rule(minor, Rule::PrivatePoolsRetry)
            && self.operations.iter().any(|operation| match operation.kind {
                OperationKind::Alloc { pool, stream, .. } => self.is_in_capture(pool, stream).is_none(),
                _ => false,
            })
    }

    pub(crate) fn slot_of_initial_block(&self, addr: u64) -> Option<u32> {
        self.initial_blocks.binary_search_by_key(&addr, |block| block.addr).ok().map(to_u32)
    }

    /// Peak of the live blocks, rounded under `settings`, where a failed request counts as well: a lower bound of the
    /// memory that serves every request.
    pub fn peak_bytes(&self, settings: &Settings) -> u64 {
        self.walk_requests(settings, |_| {})
    }

    /// The first request with which the live blocks exceed `bytes`, rounded under `settings`: its entry index and its
    /// own bytes.
    pub fn first_request_over(&self, bytes: u64, settings: &Settings) -> Option<(usize, u64)> {
        let mut first = None;
        self.walk_requests(settings, |request| {
            if first.is_none() && request.live_bytes > bytes {
                first = Some((request.entry_index as usize, request.size));
            }
        });
        first
    }

    /// For each request that failed, its entry index, and the bytes of the live blocks with it, rounded under
    /// `settings`.
    pub fn bytes_needed_by_failed(&self, settings: &Settings) -> Vec<(usize, u64)> {
        let mut needed = Vec::new();
        self.walk_requests(settings, |request| {
            if !request.was_served {
                needed.push((request.entry_index as usize, request.live_bytes));
            }
        });
        needed
    }

    /// Calls `visit` with every request, rounded under `settings`; the peak of the live blocks with it.
    pub fn walk_requests(&self, settings: &Settings, mut visit: impl FnMut(LiveRequest)) -> u64 {
        let mut sizes = vec![0; self.slot_count];
        for (size, block) in sizes.iter_mut().zip(&self.initial_blocks) {
            *size = if block.state == BlockState::ActivePendingFree { 0 } else { block.size };
        }
        let mut live = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
        let mut peak = live;
        for operation in &self.operations {
            match operation.kind {
                OperationKind::Alloc { size, slot, .. } => {
                    let size = round_size(size, settings);
                    let live_bytes = live.saturating_add(size);
                    peak = peak.max(live_bytes);
                    let (entry_index, was_served) = (operation.entry_index, slot.is_some());
                    visit(LiveRequest { entry_index, size, live_bytes, was_served });
                    if let Some(slot) = slot {
                        sizes[slot as usize] = size;
                        live = live_bytes;
                    }
                }
                // Saturates, since the sum above may have.
                OperationKind::Free { slot, .. } => live = live.saturating_sub(sizes[slot as usize]),
                _ => {}
            }
        }
        peak
    }

    /// The requests right before the one of entry `failed` (the last) that were made in a row by stacks that
    /// `is_similar` accepts: their number, and the bytes of those still live.
    pub fn similar_requests_before(&self, failed: usize, is_similar: impl Fn(StackId) -> bool) -> (usize, u64) {
        let (mut requests, mut bytes) = (0, 0u64);
        let mut freed = FxHashSet::default();
        for operation in self.operations.iter().rev().skip_while(|o| o.entry_index as usize >= failed) {
            match operation.kind {
                OperationKind::Alloc { size, context, slot: Some(slot), .. } => {
                    if !is_similar(context) {
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

    /// In bytes, not rounded; 0 if there is none.
    pub fn largest_request(&self) -> u64 {
        let sizes = self.operations.iter().map(|operation| match operation.kind {
            OperationKind::Alloc { size, .. } => size,
            _ => 0,
        });
        sizes.max().unwrap_or(0)
    }

    /// When `operation` was recorded, in microseconds; 0 if the file has no times.
    pub(crate) fn time_us(&self, operation: &Operation) -> u64 {
        self.device.time_us(operation.entry_index as usize).unwrap_or(0) // PyTorch before 2.2
    }

    /// The same program with the `workspaces` of its device. They must be in order of time; each comes after the
    /// operations recorded before it. Memory that outlives its call is a larger request of the program.
    #[must_use]
    pub fn with_workspaces(&self, workspaces: &[Workspace]) -> Self {
        let mut operations = Vec::with_capacity(self.operations.len() + workspaces.len());
        let id = self.device.id();
        let mut remaining = workspaces.iter().filter(|workspace| workspace.device == id).peekable();
        let mut entry_index = 0;
        let mut growing = Growing::new();
        for operation in self.operations.iter().map(Some).chain([None]) {
            let end_us = operation.map_or(u64::MAX, |operation| self.time_us(operation));
            while let Some(&Workspace { stream, bytes, is_required: is_needed, minimum_bytes, .. }) =
                remaining.next_if(|workspace| workspace.time_us < end_us)
            {
                if minimum_bytes > 0 {
                    growing.push_back((minimum_bytes, bytes));
                } else {
                    let kind = OperationKind::Workspace { size: bytes, stream, is_needed };
                    operations.push(Operation { entry_index, kind });
                }
            }
            let Some(mut operation) = operation.copied() else { break };
            if let (OperationKind::Alloc { size, .. }, Some(&(minimum, maximum))) =
                (&mut operation.kind, growing.front())
                && *size == minimum
            {
                *size = maximum.max(minimum);
                growing.pop_front();
            }
            entry_index = operation.entry_index;
            operations.push(operation);
        }
        Self { operations, ..self.clone() }
    }
}

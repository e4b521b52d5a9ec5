//! Trace entries, stored in columns.

use std::ops::Range;

use super::column::Column;
use super::keys;
use super::stacks::Stacks;
use crate::allocator::trace_action::Action;
use crate::base::ids::{PoolId, StackId, SymbolId};

pub(super) fn parse_action(word: SymbolId) -> Option<Action> {
    Some(match word {
        keys::ALLOC => Action::Alloc,
        keys::FREE_REQUESTED => Action::FreeRequested,
        keys::FREE_COMPLETED => Action::FreeCompleted,
        keys::SEGMENT_ALLOC => Action::SegmentAlloc,
        keys::SEGMENT_FREE => Action::SegmentFree,
        keys::SEGMENT_MAP => Action::SegmentMap,
        keys::SEGMENT_UNMAP => Action::SegmentUnmap,
        keys::SNAPSHOT => Action::Snapshot,
        keys::OOM => Action::Oom,
        keys::ANNOTATE | keys::USER_DEFINED | keys::WORKSPACE_SNAPSHOT => Action::Other,
        _ => return None,
    })
}

/// One trace entry.
#[derive(Debug, Clone, Copy)]
pub struct TraceEntry {
    /// The kind of entry, which decides the meaning of `addr` and `size`.
    pub action: Action,
    /// Address, or the free bytes of the device for [`Action::Oom`].
    pub addr: u64,
    /// Requested bytes for alloc and free, bytes of the memory for segment actions.
    pub size: u64,
    /// Raw handle of the block's stream.
    pub stream: u64,
    /// Microseconds since the epoch; 0 if the release records no time (before 2.2).
    pub time_us: u64,
    /// [`Stacks::EMPTY`] if not recorded.
    pub stack: StackId,
    /// Recorded since 2.12.
    pub pool: Option<PoolId>,
    /// The stack with its context, if there is any: see [`Stacks::extended`].
    pub extended_stack: StackId,
    /// `forward_frames`: text lines, one frame each.
    pub forward: StackId,
    /// `torch.compile`'s frame in which the entry was written, if recorded.
    pub compile_context: Option<SymbolId>,
    /// `user_metadata`, if it is text.
    pub user_metadata: Option<SymbolId>,
}

impl TraceEntry {
    pub(super) fn new() -> Self {
        Self {
            action: Action::Other,
            addr: 0,
            size: 0,
            stream: 0,
            time_us: 0,
            stack: Stacks::EMPTY,
            pool: None,
            extended_stack: Stacks::EMPTY,
            forward: Stacks::EMPTY,
            compile_context: None,
            user_metadata: None,
        }
    }
}

/// Trace entries of all devices, one per row.
#[derive(Debug, Default)]
pub struct TraceEntries {
    actions: Vec<Action>,
    addrs: Vec<u64>,
    sizes: Vec<u64>,
    streams: Column<u64>,
    times: Column<u64>,
    stacks: Vec<StackId>,
    /// One per entry; empty if no stack has any context.
    extended_stacks: Vec<StackId>,
    forwards: Column<StackId>,
    pools: Column<Option<PoolId>>,
    compile_contexts: Column<Option<SymbolId>>,
    user_metadata: Column<Option<SymbolId>>,
    /// The rows of failed requests, ascending.
    failed_requests: Vec<usize>,
}

impl TraceEntries {
    #[inline]
    pub(super) fn push(&mut self, entry: TraceEntry) {
        if entry.action == Action::Oom {
            self.failed_requests.push(self.len());
        }
        self.actions.push(entry.action);
        self.addrs.push(entry.addr);
        self.sizes.push(entry.size);
        self.streams.push(entry.stream);
        self.times.push(entry.time_us);
        self.stacks.push(entry.stack);
        self.forwards.push(entry.forward);
        self.pools.push(entry.pool);
        self.compile_contexts.push(entry.compile_context);
        self.user_metadata.push(entry.user_metadata);
    }

    /// Number of entries of all devices.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether no device has an entry.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Cheaper than [`TraceEntries::get`].
    #[inline]
    pub fn action(&self, row: usize) -> Option<Action> {
        self.actions.get(row).copied()
    }

    /// Cheaper than [`TraceEntries::get`].
    #[inline]
    pub fn stack(&self, row: usize) -> Option<StackId> {
        self.stacks.get(row).copied()
    }

    /// The failed requests in `rows`.
    pub(super) fn failed_requests(&self, rows: Range<usize>) -> &[usize] {
        let [start, end] =
            [rows.start, rows.end].map(|row| self.failed_requests.partition_point(|failed| *failed < row));
        self.failed_requests.get(start..end).unwrap_or_default()
    }

    /// `forward_frames` of every entry; one value if all are equal.
    pub(super) fn forwards(&self) -> &[StackId] {
        self.forwards.values()
    }

    /// The compile context of every entry; one value if all are equal.
    pub(super) fn compile_contexts(&self) -> &[Option<SymbolId>] {
        self.compile_contexts.values()
    }

    pub(super) fn set_extended_stacks(&mut self, extended_stacks: Vec<StackId>) {
        self.extended_stacks = extended_stacks;
    }

    /// Microseconds since the epoch, if the release records times.
    pub fn time_us(&self, row: usize) -> Option<u64> {
        self.times.get(row).filter(|t| *t != 0)
    }

    /// The entry in `row`, if there is one.
    #[expect(clippy::inline_always, reason = "inlined, it reads only the columns that the caller uses")]
    #[inline(always)]
    pub fn get(&self, row: usize) -> Option<TraceEntry> {
        let stack = self.stack(row)?;
        // The columns have equal lengths.
        Some(TraceEntry {
            action: self.action(row).unwrap_or(Action::Other),
            addr: self.addrs.get(row).copied().unwrap_or_default(),
            size: self.sizes.get(row).copied().unwrap_or_default(),
            stream: self.streams.get(row).unwrap_or_default(),
            time_us: self.times.get(row).unwrap_or_default(),
            stack,
            extended_stack: self.extended_stacks.get(row).copied().unwrap_or(stack),
            forward: self.forwards.get(row).unwrap_or_default(),
            pool: self.pools.get(row).unwrap_or_default(),
            compile_context: self.compile_contexts.get(row).unwrap_or_default(),
            user_metadata: self.user_metadata.get(row).unwrap_or_default(),
        })
    }
}

/// The start or the end of a named phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The phase, such as `Optimizer.step#AdamW.step`.
    pub name: SymbolId,
    /// False for the end of the phase.
    pub is_start: bool,
    /// Device index.
    pub device: u64,
    /// Microseconds since the epoch.
    pub time_us: u64,
}

//! Trace entries in columns: what the allocator did, in its own order, a device at a time.

use super::column::Column;
use super::keys;
use super::stacks::Stacks;
use crate::allocator::trace_action::Action;
use crate::base::ids::{PoolId, StackId, SymbolId};

/// The action that a trace calls `word`, if it is one.
pub(super) fn action_of(word: SymbolId) -> Option<Action> {
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
    /// What happened.
    pub action: Action,
    /// Address in device memory; free bytes of the device for [`Action::Oom`].
    pub addr: u64,
    /// Bytes: of the request for alloc and free, of the memory for segment actions.
    pub size: u64,
    /// The block's stream, as the raw handle.
    pub stream: u64,
    /// Microseconds since the epoch; 0 when the release records no time (before 2.2).
    pub time_us: u64,
    /// Where in the program; [`Stacks::EMPTY`] when not recorded.
    pub stack: StackId,
    /// The pool, where the release records it (2.12).
    pub pool: Option<PoolId>,
    /// Who made the memory: the stack, and what is known beside it (see [`Stacks::maker`]).
    pub made_by: StackId,
    /// `forward_frames`, where recorded, as text.
    pub forward: StackId,
    /// `compile_context`, where recorded.
    pub compile_context: Option<SymbolId>,
    /// `user_metadata`, where recorded as text.
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
            made_by: Stacks::EMPTY,
            forward: Stacks::EMPTY,
            compile_context: None,
            user_metadata: None,
        }
    }
}

/// Trace entries, one a row.
#[derive(Debug, Default)]
pub struct TraceEntries {
    actions: Vec<Action>,
    addrs: Vec<u64>,
    sizes: Vec<u64>,
    streams: Column<u64>,
    times: Column<u64>,
    stacks: Vec<StackId>,
    /// Of each entry; none where no entry has more than its stack.
    makers: Vec<StackId>,
    forwards: Column<StackId>,
    pools: Column<Option<PoolId>>,
    compile_contexts: Column<Option<SymbolId>>,
    user_metadata: Column<Option<SymbolId>>,
}

impl TraceEntries {
    #[inline]
    pub(super) fn push(&mut self, event: TraceEntry) {
        self.actions.push(event.action);
        self.addrs.push(event.addr);
        self.sizes.push(event.size);
        self.streams.push(event.stream);
        self.times.push(event.time_us);
        self.stacks.push(event.stack);
        self.forwards.push(event.forward);
        self.pools.push(event.pool);
        self.compile_contexts.push(event.compile_context);
        self.user_metadata.push(event.user_metadata);
    }

    /// How many entries there are, over all devices.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// What entry `row` records: cheaper than the whole [`TraceEntries::get`].
    #[inline]
    pub fn action(&self, row: usize) -> Option<Action> {
        self.actions.get(row).copied()
    }

    /// The stack of entry `row`: cheaper than the whole [`TraceEntries::get`].
    #[inline]
    pub fn stack(&self, row: usize) -> Option<StackId> {
        self.stacks.get(row).copied()
    }

    /// The `forward_frames` of entry `row`.
    pub(super) fn forward(&self, row: usize) -> Option<StackId> {
        self.forwards.get(row)
    }

    /// The `compile_context` of entry `row`.
    pub(super) fn compile_context(&self, row: usize) -> Option<SymbolId> {
        self.compile_contexts.get(row).flatten()
    }

    pub(super) fn set_makers(&mut self, makers: Vec<StackId>) {
        self.makers = makers;
    }

    /// The time of entry `row`, if the release records times.
    pub fn time_us(&self, row: usize) -> Option<u64> {
        self.times.get(row).filter(|t| *t != 0)
    }

    /// Entry `row`.
    #[inline]
    pub fn get(&self, row: usize) -> Option<TraceEntry> {
        Some(TraceEntry {
            action: *self.actions.get(row)?,
            addr: *self.addrs.get(row)?,
            size: *self.sizes.get(row)?,
            stream: self.streams.get(row)?,
            time_us: self.times.get(row)?,
            stack: *self.stacks.get(row)?,
            made_by: *self.makers.get(row).or_else(|| self.stacks.get(row))?,
            forward: self.forwards.get(row)?,
            pool: self.pools.get(row)?,
            compile_context: self.compile_contexts.get(row)?,
            user_metadata: self.user_metadata.get(row)?,
        })
    }
}

/// The beginning or the end of a named phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The phase, such as `Optimizer.step#AdamW.step`.
    pub name: SymbolId,
    /// Whether it begins here, else it ends.
    pub is_start: bool,
    /// Device number.
    pub device: u64,
    /// Microseconds since the epoch.
    pub time_us: u64,
}

//! Trace entries in columns: what the allocator did, in its own order, a device at a time.

use super::column::Column;
use super::keys;
use super::stacks::Stacks;
use crate::ids::{PoolId, StackId, SymbolId};

/// What a trace entry records (`TraceEntry::Action` in c10/cuda/CUDACachingAllocator.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out; `size` is what was asked for.
    Alloc,
    /// The program freed a block; other streams may still use it.
    FreeRequested,
    /// The block went back to the pool.
    FreeCompleted,
    /// `cudaMalloc` of a segment.
    SegmentAlloc,
    /// `cudaFree` of a segment.
    SegmentFree,
    /// Physical memory mapped into an expandable segment.
    SegmentMap,
    /// Physical memory taken out of an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed; `addr` holds the device's free bytes, `size` the rounded request.
    Oom,
    /// Anything else: annotations, and actions of releases to come.
    Other,
}

impl Action {
    pub(super) fn from_word(word: SymbolId) -> Option<Self> {
        Some(match word {
            keys::ALLOC => Self::Alloc,
            keys::FREE_REQUESTED => Self::FreeRequested,
            keys::FREE_COMPLETED => Self::FreeCompleted,
            keys::SEGMENT_ALLOC => Self::SegmentAlloc,
            keys::SEGMENT_FREE => Self::SegmentFree,
            keys::SEGMENT_MAP => Self::SegmentMap,
            keys::SEGMENT_UNMAP => Self::SegmentUnmap,
            keys::SNAPSHOT => Self::Snapshot,
            keys::OOM => Self::Oom,
            keys::ANNOTATE | keys::USER_DEFINED | keys::WORKSPACE_SNAPSHOT => Self::Other,
            _ => return None,
        })
    }
}

/// One trace entry.
#[derive(Debug, Clone, Copy)]
pub struct Event {
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
    /// `compile_context`, where recorded.
    pub compile_context: Option<SymbolId>,
    /// `user_metadata`, where recorded as text.
    pub user_metadata: Option<SymbolId>,
}

impl Event {
    pub(super) fn new() -> Self {
        Self {
            action: Action::Other,
            addr: 0,
            size: 0,
            stream: 0,
            time_us: 0,
            stack: Stacks::EMPTY,
            pool: None,
            compile_context: None,
            user_metadata: None,
        }
    }
}

/// Trace entries, one a row.
#[derive(Debug, Default)]
pub struct Events {
    actions: Vec<Action>,
    addrs: Vec<u64>,
    sizes: Vec<u64>,
    streams: Column<u64>,
    times: Column<u64>,
    stacks: Vec<StackId>,
    pools: Column<Option<PoolId>>,
    compile_contexts: Column<Option<SymbolId>>,
    user_metadata: Column<Option<SymbolId>>,
}

impl Events {
    #[inline]
    pub(super) fn push(&mut self, event: Event) {
        self.actions.push(event.action);
        self.addrs.push(event.addr);
        self.sizes.push(event.size);
        self.streams.push(event.stream);
        self.times.push(event.time_us);
        self.stacks.push(event.stack);
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

    /// What entry `row` records: cheaper than the whole [`Events::get`].
    #[inline]
    pub fn action(&self, row: usize) -> Option<Action> {
        self.actions.get(row).copied()
    }

    /// The time of entry `row`, if the release records times.
    pub fn time_us(&self, row: usize) -> Option<u64> {
        self.times.get(row).filter(|t| *t != 0)
    }

    /// Entry `row`.
    #[inline]
    pub fn get(&self, row: usize) -> Option<Event> {
        Some(Event {
            action: *self.actions.get(row)?,
            addr: *self.addrs.get(row)?,
            size: *self.sizes.get(row)?,
            stream: self.streams.get(row)?,
            time_us: self.times.get(row)?,
            stack: *self.stacks.get(row)?,
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

//! Trace entries, stored in columns.

use std::collections::BTreeMap;
use std::ops::Range;

use super::column::{Column, Numbers};
use super::keys;
use crate::allocator::trace_action::Action;
use crate::base::ids::{PoolId, StackId, SymbolId, to_u32};
use crate::base::pages;

pub(super) fn parse_action(word: SymbolId) -> Option<Action> {
    match word {
        keys::ANNOTATE | keys::USER_DEFINED | keys::WORKSPACE_SNAPSHOT => Some(Action::Other),
        _ => Action::ALL.get(word.index().checked_sub(keys::COUNT)?).copied().filter(|action| *action != Action::Other),
    }
}

/// One trace entry.
#[derive(Debug, Clone, Copy, Default)]
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
    /// [`Stacks::EMPTY`](super::Stacks::EMPTY) if not recorded.
    pub stack: StackId,
    /// Recorded since 2.12.
    pub pool: Option<PoolId>,
    /// The stack with its context, if there is any: see [`Stacks::extended`](super::Stacks::extended).
    pub extended_stack: StackId,
    /// `forward_frames`: text lines, one frame each.
    pub forward: StackId,
    /// `torch.compile`'s frame in which the entry was written, if recorded.
    pub compile_context: Option<SymbolId>,
    /// `user_metadata`, if it is text.
    pub user_metadata: Option<SymbolId>,
}

impl TraceEntry {
    /// Bytes reserved after it, given those before.
    pub fn reserved_after(&self, reserved: u64) -> u64 {
        match self.action {
            Action::SegmentAlloc | Action::SegmentMap => reserved.saturating_add(self.size),
            Action::SegmentFree | Action::SegmentUnmap => reserved.saturating_sub(self.size),
            _ => reserved,
        }
    }
}

/// Values that most entries of a trace share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryContext {
    pub(super) stream: u64,
    pub(super) forward: StackId,
    pub(super) pool: Option<PoolId>,
    pub(super) compile_context: Option<SymbolId>,
    pub(super) user_metadata: Option<SymbolId>,
}

/// Trace entries of all devices, one per row.
#[derive(Debug, Default)]
pub struct TraceEntries {
    actions: Vec<Action>,
    /// PyTorch's blocks start at multiples of 512 bytes.
    addrs: Numbers<9>,
    sizes: Numbers<0>,
    times: Numbers<0>,
    stacks: Vec<StackId>,
    /// One per entry; empty if no stack has any context.
    pub(super) extended_stacks: Vec<StackId>,
    /// Rows of `contexts`.
    context_rows: Column<u32>,
    /// The distinct contexts, in order of appearance.
    contexts: Vec<EntryContext>,
    context_ids: BTreeMap<EntryContext, u32>,
    /// The context of the last entry.
    last_context: u32,
    /// The rows of failed requests, ascending.
    failed_requests: Vec<usize>,
}

impl TraceEntries {
    /// Makes room for `rows`.
    pub(super) fn reserve(&mut self, rows: usize) {
        pages::reserve(&mut self.actions, rows);
        self.addrs.reserve(rows);
        self.sizes.reserve(rows);
        self.times.reserve(rows);
        pages::reserve(&mut self.stacks, rows);
        self.context_rows.reserve(rows);
    }

    pub(super) fn push(&mut self, entry: TraceEntry) {
        let TraceEntry { action, addr, size, time_us, stack, stream, forward, .. } = entry;
        let TraceEntry { pool, compile_context, user_metadata, .. } = entry;
        let context = self.context_row(EntryContext { stream, forward, pool, compile_context, user_metadata });
        self.push_row(action, [addr, size, time_us], stack, context);
    }

    /// The row of `context`, added if it is new.
    pub(super) fn context_row(&mut self, context: EntryContext) -> u32 {
        if self.contexts.get(self.last_context as usize) != Some(&context) {
            self.last_context = *self.context_ids.entry(context).or_insert_with(|| {
                self.contexts.push(context);
                to_u32(self.contexts.len() - 1)
            });
        }
        self.last_context
    }

    /// Adds an entry whose context is in row `context`.
    #[expect(clippy::inline_always, reason = "called for every entry")]
    #[inline(always)]
    pub(super) fn push_row(&mut self, action: Action, [addr, size, time]: [u64; 3], stack: StackId, context: u32) {
        if action == Action::Oom {
            self.failed_requests.push(self.len());
        }
        self.actions.push(action);
        self.addrs.push(addr);
        self.sizes.push(size);
        self.times.push(time);
        self.stacks.push(stack);
        self.context_rows.push(context);
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
        let [start, end] = [rows.start, rows.end].map(|row| self.failed_requests.partition_point(|known| *known < row));
        self.failed_requests.get(start..end).unwrap_or_default()
    }

    /// The distinct contexts of entries, in order of appearance.
    pub(super) fn contexts(&self) -> &[EntryContext] {
        &self.contexts
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
        let context = self.context_rows.get(row).and_then(|context| self.contexts.get(context as usize));
        let context = context.copied().unwrap_or_default();
        // The columns have equal lengths.
        Some(TraceEntry {
            action: self.action(row).unwrap_or(Action::Other),
            addr: self.addrs.get(row).unwrap_or_default(),
            size: self.sizes.get(row).unwrap_or_default(),
            stream: context.stream,
            time_us: self.times.get(row).unwrap_or_default(),
            stack,
            extended_stack: self.extended_stacks.get(row).copied().unwrap_or(stack),
            forward: context.forward,
            pool: context.pool,
            compile_context: context.compile_context,
            user_metadata: context.user_metadata,
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

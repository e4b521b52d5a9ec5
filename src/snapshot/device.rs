//! One device of a snapshot: its segments, their blocks and its trace entries.

use std::collections::BTreeSet;

use super::{Block, Segment, Snapshot, TraceEntry};
use crate::allocator::trace_action::Action;
use crate::base::ids::StackId;

/// What a snapshot says of one device. A handle: it costs nothing to copy.
///
/// A trace entry is named by its index in the device's trace, oldest first.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    snapshot: &'a Snapshot,
    id: u64,
    /// Its first row in [`Snapshot::entries`].
    first: usize,
    len: usize,
}

impl Snapshot {
    /// Every device that has a segment or a trace entry, by number.
    pub fn devices(&self) -> impl Iterator<Item = Device<'_>> {
        let with_entries = (0u64..).zip(&self.traces).filter(|(_, rows)| !rows.is_empty());
        let with_segments = self.segments.iter().map(|segment| segment.device);
        let ids: BTreeSet<u64> = with_entries.map(|(id, _)| id).chain(with_segments).collect();
        ids.into_iter().map(|id| self.device(id))
    }

    /// Device `id`; one without segments and entries if the file says nothing of it.
    pub fn device(&self, id: u64) -> Device<'_> {
        let rows = usize::try_from(id).ok().and_then(|index| self.traces.get(index));
        let rows = rows.cloned().unwrap_or_default();
        Device { snapshot: self, id, first: rows.start, len: rows.len() }
    }
}

impl<'a> Device<'a> {
    /// Its number.
    pub fn id(self) -> u64 {
        #[cfg(debug_assertions)]
        super::reads::count();
        self.id
    }

    /// The snapshot that it is of.
    pub fn snapshot(self) -> &'a Snapshot {
        self.snapshot
    }

    /// Its segments, in the order of the file.
    pub fn segments(self) -> impl Iterator<Item = &'a Segment> + Clone {
        let all = self.snapshot.segments.as_slice();
        let first = all.partition_point(|segment| segment.device < self.id);
        let own = all.get(first..).unwrap_or_default();
        own.iter().take_while(move |segment| {
            #[cfg(debug_assertions)]
            super::reads::count();
            segment.device == self.id
        })
    }

    /// The blocks of its segments, a segment's in address order.
    pub fn blocks(self) -> impl Iterator<Item = &'a Block> + Clone {
        self.segments().flat_map(move |segment| self.snapshot.blocks_of(segment))
    }

    /// How many trace entries it has.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether nothing was recorded of it.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline]
    fn row(self, index: usize) -> Option<usize> {
        #[cfg(debug_assertions)]
        super::reads::count();
        (index < self.len).then(|| self.first + index)
    }

    /// Entry `index` of its trace.
    #[inline]
    pub fn entry(self, index: usize) -> TraceEntry {
        let entry = self.row(index).and_then(|row| self.snapshot.entries.get(row));
        debug_assert!(entry.is_some(), "an index is of an entry of this trace");
        entry.unwrap_or_else(TraceEntry::new)
    }

    /// All entries of its trace.
    pub fn entries(self) -> impl DoubleEndedIterator<Item = TraceEntry> + use<'a> {
        (0..self.len).map(move |index| self.entry(index))
    }

    /// The entries, with their indices, whose action is `wanted`: of the others no more is read.
    pub fn entries_where(
        self,
        wanted: impl Fn(Action) -> bool,
    ) -> impl DoubleEndedIterator<Item = (usize, TraceEntry)> {
        let is_wanted = move |index: &usize| self.action(*index).is_some_and(&wanted);
        (0..self.len).filter(is_wanted).map(move |index| (index, self.entry(index)))
    }

    /// What entry `index` records: cheaper than the whole [`Device::entry`].
    #[inline]
    pub fn action(self, index: usize) -> Option<Action> {
        self.snapshot.entries.action(self.row(index)?)
    }

    /// The stack of entry `index`: cheaper than the whole [`Device::entry`].
    #[inline]
    pub fn stack(self, index: usize) -> Option<StackId> {
        self.snapshot.entries.stack(self.row(index)?)
    }

    /// When entry `index` was recorded, in microseconds since the epoch; `None` before 2.2.
    #[inline]
    pub fn time_us(self, index: usize) -> Option<u64> {
        self.snapshot.entries.time_us(self.row(index)?)
    }

    /// Which entries record `action`, in order.
    pub fn with_action(self, action: Action) -> impl DoubleEndedIterator<Item = usize> + use<'a> {
        (0..self.len).filter(move |index| self.action(*index) == Some(action))
    }

    /// Which entries are failed requests, in order.
    pub fn failed(self) -> impl DoubleEndedIterator<Item = usize> + use<'a> {
        self.with_action(Action::Oom)
    }
}

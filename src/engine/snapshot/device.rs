//! One device of a snapshot: its segments, blocks and trace entries.

use std::collections::BTreeSet;

use super::{Block, Segment, Snapshot, TraceEntry};
use crate::allocator::trace_action::Action;
use crate::base::ids::StackId;
use crate::base::step_counter::count_step;

/// A view of one device of a snapshot, cheap to copy.
///
/// Trace entries are identified by their index in the device's trace, oldest first.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    snapshot: &'a Snapshot,
    id: u64,
    /// Its first row in [`Snapshot::entries`].
    first_row: usize,
    len: usize,
}

impl Snapshot {
    /// The devices that hold or held memory, in order of their numbers. PyTorch writes a trace for every visible device,
    /// and each snapshot adds an entry to all of them. If none held memory, the first with an entry.
    pub fn devices(&self) -> impl Iterator<Item = Device<'_>> {
        let with_entries = (0u64..).zip(&self.traces).filter(|(_, rows)| !rows.is_empty());
        let with_segments = self.segments.iter().map(|segment| segment.device);
        let ids: BTreeSet<u64> = with_entries.map(|(id, _)| id).chain(with_segments).collect();
        let (held, others): (Vec<_>, Vec<_>) =
            ids.into_iter().map(|id| self.device(id)).partition(|device| device.has_held_memory());
        let first = if held.is_empty() { others.into_iter().next() } else { None };
        held.into_iter().chain(first)
    }

    /// Device `id`; an empty one if the file does not have it.
    pub fn device(&self, id: u64) -> Device<'_> {
        let rows = usize::try_from(id).ok().and_then(|index| self.traces.get(index));
        let rows = rows.cloned().unwrap_or_default(); // a device without a trace has no rows
        Device { snapshot: self, id, first_row: rows.start, len: rows.len() }
    }
}

impl<'a> Device<'a> {
    /// Device index as the process numbers it.
    pub fn id(self) -> u64 {
        count_step();
        self.id
    }

    /// The snapshot that it is a part of.
    pub fn snapshot(self) -> &'a Snapshot {
        self.snapshot
    }

    /// Its segments, in the order of the file.
    pub fn segments(self) -> impl Iterator<Item = &'a Segment> + Clone {
        let all = self.snapshot.segments.as_slice();
        let first = all.partition_point(|segment| segment.device < self.id);
        all[first..].iter().take_while(move |segment| {
            count_step();
            segment.device == self.id
        })
    }

    /// The blocks of its segments; in address order within a segment.
    pub fn blocks(self) -> impl Iterator<Item = &'a Block> + Clone {
        self.segments().flat_map(move |segment| self.snapshot.blocks_of(segment))
    }

    /// Whether it has a segment, or an entry about memory.
    fn has_held_memory(self) -> bool {
        self.segments().next().is_some() || (0..self.len).any(|index| self.action(index) != Some(Action::Snapshot))
    }

    /// Number of trace entries.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it has no trace entries.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline]
    fn row(self, index: usize) -> Option<usize> {
        count_step();
        (index < self.len).then(|| self.first_row + index)
    }

    /// Entry `index` of its trace.
    #[expect(clippy::inline_always, reason = "see `TraceEntries::get`")]
    #[inline(always)]
    pub fn entry(self, index: usize) -> TraceEntry {
        count_step();
        let row = if index < self.len { self.first_row + index } else { usize::MAX };
        let entry = self.snapshot.entries.get(row); // in a closure it would not be inlined
        debug_assert!(entry.is_some(), "the index must be in this trace");
        entry.unwrap_or_default()
    }

    /// Its trace, oldest entry first.
    pub fn entries(self) -> impl DoubleEndedIterator<Item = TraceEntry> + use<'a> {
        (0..self.len).map(move |index| self.entry(index))
    }

    /// The entries with an action to `keep`, with their indexes. Reads only the action of the others.
    pub fn entries_where(self, keep: impl Fn(Action) -> bool) -> impl DoubleEndedIterator<Item = (usize, TraceEntry)> {
        let indexes = (0..self.len).filter(move |index| self.action(*index).is_some_and(&keep));
        indexes.map(move |index| (index, self.entry(index)))
    }

    /// Cheaper than [`Device::entry`].
    #[inline]
    pub fn action(self, index: usize) -> Option<Action> {
        self.snapshot.entries.action(self.row(index)?)
    }

    /// Cheaper than [`Device::entry`].
    #[inline]
    pub fn stack(self, index: usize) -> Option<StackId> {
        self.snapshot.entries.stack(self.row(index)?)
    }

    /// The time of entry `index`, in microseconds since the epoch; `None` before 2.2.
    #[inline]
    pub fn time_us(self, index: usize) -> Option<u64> {
        self.snapshot.entries.time_us(self.row(index)?)
    }

    /// The first entry at or after index `from` whose time is at least `time_us`; the trace length if there is none.
    pub fn first_entry_at(self, from: usize, time_us: u64) -> usize {
        let (mut low, mut high) = (from, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            // Entries without a time count as older than every time.
            if self.time_us(middle).unwrap_or(0) < time_us {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The indexes of the entries with `action`.
    pub fn indexes_with_action(self, action: Action) -> impl DoubleEndedIterator<Item = usize> + use<'a> {
        (0..self.len).filter(move |index| self.action(*index) == Some(action))
    }

    /// The indexes of failed requests.
    pub fn failed_requests(self) -> impl DoubleEndedIterator<Item = usize> + use<'a> {
        let rows = self.first_row..self.first_row + self.len;
        self.snapshot.entries.failed_requests(rows).iter().map(move |row| row - self.first_row)
    }
}

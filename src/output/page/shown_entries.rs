//! Restricts lifetimes to the entries that a page shows.

use crate::study::lifetimes::{EntryCount, MemoryLifetimes};

/// The range of entries that a page shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownEntries {
    /// Number of entries before the range.
    pub(super) first: EntryCount,
    pub(super) entries: EntryCount,
}

impl ShownEntries {
    /// Converts a position in the trace to one on the page, where 0 is before the first entry shown. `None` after the
    /// last.
    pub(super) fn to_page(self, moment: EntryCount) -> Option<EntryCount> {
        let moment = moment.saturating_sub(self.first);
        (moment <= self.entries).then_some(moment)
    }
}

/// Removes lifetimes outside the entries shown and shifts the others.
pub(super) fn retain_shown(lives: &mut MemoryLifetimes, shown: ShownEntries) {
    let is_seen = |start: EntryCount, end: Option<EntryCount>| {
        start <= shown.first.saturating_add(shown.entries) && end.is_none_or(|end| end > shown.first)
    };
    lives.allocations.retain(|one| is_seen(one.start, one.reusable_at));
    lives.segments.retain(|one| is_seen(one.start, one.end));
    for one in &mut lives.allocations {
        one.start = one.start.saturating_sub(shown.first);
        one.freed_at = one.freed_at.and_then(|at| shown.to_page(at));
        one.reusable_at = one.reusable_at.and_then(|at| shown.to_page(at));
    }
    for one in &mut lives.segments {
        one.start = one.start.saturating_sub(shown.first);
        one.end = one.end.and_then(|at| shown.to_page(at));
    }
    // Blocks that were freed before the first entry come first.
    lives.allocations.sort_by_key(|one| (one.start, one.freed_at != Some(0)));
}

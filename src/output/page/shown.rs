//! The part of a recording that a page shows.

use super::allocations::{Lifetimes, Moment};

/// The part of a recording that a page shows: entries outside of it are left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// Entries before it.
    pub(super) first: Moment,
    pub(super) entries: Moment,
}

impl Shown {
    /// `moment` as the page counts: before its first entry is 0. `None` after its last.
    pub(super) fn moment(self, moment: Moment) -> Option<Moment> {
        let moment = moment.saturating_sub(self.first);
        (moment <= self.entries).then_some(moment)
    }
}

impl Lifetimes {
    /// Leaves out what came after the part that is shown, or was gone before it.
    pub(super) fn cut(&mut self, shown: Shown) {
        let is_seen = |start: Moment, end: Option<Moment>| {
            start <= shown.first.saturating_add(shown.entries)
                && end.is_none_or(|end| end > shown.first)
        };
        self.allocations.retain(|one| is_seen(one.start, one.done));
        self.stretches.retain(|one| is_seen(one.start, one.end));
        for one in &mut self.allocations {
            one.start = one.start.saturating_sub(shown.first);
            one.requested = one.requested.and_then(|at| shown.moment(at));
            one.done = one.done.and_then(|at| shown.moment(at));
        }
        for one in &mut self.stretches {
            one.start = one.start.saturating_sub(shown.first);
            one.end = one.end.and_then(|at| shown.moment(at));
        }
        // What the program had freed before comes first.
        self.allocations.sort_by_key(|one| (one.start, one.requested != Some(0)));
    }
}

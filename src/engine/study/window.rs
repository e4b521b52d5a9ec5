//! The part of a trace to study.

use std::ops::Range;

use crate::snapshot::Device;

/// A part of a trace, a half-open range of entry indexes; by default all of it. Earlier entries only determine the state
/// at its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// The first entry; `None` is the start of the trace.
    pub from: Option<Bound>,
    /// The entry after the last; `None` is the end of the trace.
    pub to: Option<Bound>,
}

/// An end of a part of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// This entry index.
    Entry(u64),
    /// This many entries before the end of the trace.
    BeforeEnd(u64),
    /// This many entries before (negative) or after the last failed request; if none failed, the end of the trace that
    /// an open range has.
    FromFailure(i64),
}

impl Window {
    /// The selected entry indexes in the trace of `device`.
    pub(crate) fn range_in(self, device: Device<'_>) -> Range<usize> {
        let len = device.len();
        let clamp = |n: u64| usize::try_from(n).unwrap_or(len).min(len);
        let resolve = |bound: Option<Bound>, open: usize| match bound {
            None => open,
            Some(Bound::Entry(n)) => clamp(n),
            Some(Bound::BeforeEnd(n)) => len - clamp(n),
            Some(Bound::FromFailure(n)) => device.failed_requests().next_back().map_or(open, |failed| {
                let by = clamp(n.unsigned_abs());
                if n < 0 { failed.saturating_sub(by) } else { failed.saturating_add(by).min(len) }
            }),
        };
        let start = resolve(self.from, 0);
        start..resolve(self.to, len).max(start)
    }
}

/// The sample for the state after `entry` (`None`: before the first), or `None` outside `window`. Sample 0 covers both
/// the state at the window's start and its first entry.
#[inline]
pub fn sample_index(window: &Range<usize>, entry: Option<usize>) -> Option<usize> {
    let applied = entry.map_or(0, |index| index + 1);
    let is_in = (window.start..=window.end).contains(&applied);
    is_in.then(|| applied.saturating_sub(window.start + 1))
}

/// The entry of state number `sample` of `window`; `None` for the state at its start, which is number 0.
pub fn entry_of_sample(window: &Range<usize>, sample: usize) -> Option<usize> {
    sample.checked_sub(1).map(|after| window.start + after)
}

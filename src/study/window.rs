//! The part of a trace that is looked at.

use std::ops::Range;

use crate::snapshot::Device;

/// Which part of a trace to look at. What came before counts as the state at its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// All of it.
    #[default]
    Whole,
    /// From one index up to, not including, another; the end where there is none.
    Between(Option<u64>, Option<u64>),
    /// This many entries at the end.
    Last(u64),
    /// This many entries before and after the last failed request; all of it where none failed.
    AroundOom(u64),
}

impl Window {
    /// The indices it stands for in the trace of `device`.
    pub(crate) fn range_in(self, device: Device<'_>) -> Range<usize> {
        let len = device.len();
        let clamp = |n: u64| usize::try_from(n).unwrap_or(len).min(len);
        let range = match self {
            Self::Whole => 0..len,
            Self::Between(from, to) => clamp(from.unwrap_or(0))..clamp(to.unwrap_or(u64::MAX)),
            Self::Last(n) => len - clamp(n)..len,
            Self::AroundOom(n) => device.failed().next_back().map_or(0..len, |oom| {
                oom.saturating_sub(clamp(n))
                    ..oom.saturating_add(clamp(n)).saturating_add(1).min(len)
            }),
        };
        range.start..range.end.max(range.start)
    }
}

/// Where in `window` the moment after `entry` (`None`: before the first) is seen: the state in which
/// the window begins together with its first entry, and nothing outside.
#[inline]
pub(crate) fn sample_index(window: &Range<usize>, entry: Option<usize>) -> Option<usize> {
    let applied = entry.map_or(0, |index| index + 1);
    let is_in = (window.start..=window.end).contains(&applied);
    is_in.then(|| applied.saturating_sub(window.start + 1))
}

/// The entry of the `sample`th moment of `window`; `None` for the state in which it begins.
pub(crate) fn entry_of_sample(window: &Range<usize>, sample: usize) -> Option<usize> {
    sample.checked_sub(1).map(|after| window.start + after)
}

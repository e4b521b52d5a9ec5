//! The part of a trace to study.

use std::ops::Range;

use crate::snapshot::Device;

/// Selects a part of a trace. Earlier entries only determine the state at its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// The whole trace.
    #[default]
    All,
    /// A half-open range of entry indexes; `None` is the start or the end of the trace.
    Between(Option<u64>, Option<u64>),
    /// The last entries.
    Last(u64),
    /// This many entries before and after the last failed request; the whole trace if none failed.
    AroundOom(u64),
}

impl Window {
    /// The selected entry indexes in the trace of `device`.
    pub(crate) fn range_in(self, device: Device<'_>) -> Range<usize> {
        let len = device.len();
        let clamp = |n: u64| usize::try_from(n).unwrap_or(len).min(len);
        let range = match self {
            Self::All => 0..len,
            // An open end is that of the trace.
            Self::Between(from, to) => clamp(from.unwrap_or(0))..clamp(to.unwrap_or(u64::MAX)),
            Self::Last(n) => len - clamp(n)..len,
            Self::AroundOom(n) => device.failed_requests().next_back().map_or(0..len, |oom| {
                oom.saturating_sub(clamp(n))..oom.saturating_add(clamp(n)).saturating_add(1).min(len)
            }),
        };
        range.start..range.end.max(range.start)
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

//! The conclusion on a failed request: its verdict, corrected by what was replayed and by what grows.

use super::advice::{Advice, explaining_growth};
use super::failure::OomReport;
use crate::allocator::verdict::Verdict;
use crate::study::attribution::Leaks;

/// The word of a page for `oom`, the last failure of a device. It answers the same question as `advice`, the first of its
/// recommendations: the free bytes alone may blame a layout that no setting mends.
pub(super) fn conclude(oom: &OomReport, advice: &Advice, leaks: &Leaks) -> Verdict {
    if explaining_growth(oom, leaks).is_some() {
        return Verdict::Growth;
    }
    let is_served = oom.remedies.iter().any(|remedy| remedy.avoids_oom);
    let is_apart = matches!(oom.verdict, Verdict::Fragmentation | Verdict::OtherStream);
    match advice {
        Advice::Cure(cure) if cure.is_growth() => Verdict::Growth,
        Advice::Cure(_) => Verdict::Capacity,
        Advice::Shapes(..) if is_apart => Verdict::Capacity,
        Advice::NothingHelps(..) | Advice::Guess(..) if is_apart && !is_served => Verdict::Capacity,
        Advice::GoOn(_) if oom.verdict == Verdict::Capacity => Verdict::Fragmentation,
        _ => oom.verdict,
    }
}

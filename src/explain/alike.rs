//! Failures of several ranks that are one and the same.

use super::answer::Failure;
use crate::base::intern::SeededMap;

/// Who failed, and the line of the log that says so.
struct Teller {
    rank: Option<u32>,
    source: Option<String>,
    line: u64,
}

/// Says of each failure which earlier one, of another rank, it is like.
pub(super) fn put_together(mut failures: Vec<Failure>) -> Vec<Failure> {
    let mut known: SeededMap<String, Vec<Teller>> = SeededMap::default();
    for failure in &mut failures {
        let (rank, source) = (failure.rank, failure.source.clone());
        if rank.is_none() && source.is_none() {
            continue;
        }
        let place = failure.culprit.as_ref().map(|frame| (&frame.file, frame.line));
        let whose = (failure.kind, failure.system, &failure.backend);
        let what = (failure.verdict, failure.requested_bytes);
        let tellers = known.entry(format!("{whose:?} {what:?} {place:?}")).or_default();
        // What one rank says twice is not put together.
        if tellers.iter().all(|teller| (teller.rank, &teller.source) != (rank, &source)) {
            failure.same_as = tellers.first().map(|first| first.line);
            tellers.push(Teller { rank, source, line: failure.line });
        }
    }
    failures
}

//! Matches failures of different ranks: same request, same source line, same verdict.

use super::answer::ExplainedFailure;
use crate::base::intern::SeededMap;

/// A rank that reported a failure, and the line of the log.
struct Reporter {
    rank: Option<u32>,
    source: Option<String>,
    file: Option<String>,
    line: u64,
}

/// Sets [`ExplainedFailure::same_as`] where an earlier failure of another rank is the same.
pub(super) fn link_same_failures(mut failures: Vec<ExplainedFailure>) -> Vec<ExplainedFailure> {
    let mut known: SeededMap<String, Vec<Reporter>> = SeededMap::default();
    for failure in &mut failures {
        let (rank, source, file) = (failure.rank, failure.source.clone(), failure.file.clone());
        if rank.is_none() && source.is_none() && file.is_none() {
            continue;
        }
        let location = failure.culprit.as_ref().map(|frame| (&frame.file, frame.line));
        let system = (failure.kind, failure.system, &failure.backend);
        let request = (failure.verdict, failure.requested_bytes);
        let reporters = known.entry(format!("{system:?} {request:?} {location:?}")).or_default();
        // A rank that fails twice has two failures.
        let is_other = |one: &Reporter| (one.rank, &one.source, &one.file) != (rank, &source, &file);
        if reporters.iter().all(is_other) {
            failure.same_as = reporters.first().map(|first| first.line);
            failure.same_file = reporters.first().and_then(|first| first.file.clone());
            reporters.push(Reporter { rank, source, file, line: failure.line });
        }
    }
    failures
}

//! Matches failures of different ranks: same request, same source line, same verdict.

use super::answer::ExplainedFailure;
use crate::base::intern::SeededMap;

/// Sets [`ExplainedFailure::same_as`] where an earlier failure of another rank is the same.
pub(super) fn link_same_failures(mut failures: Vec<ExplainedFailure>) -> Vec<ExplainedFailure> {
    let reporter = |failure: &ExplainedFailure| (failure.rank, failure.source.clone(), failure.file.clone());
    let mut known: SeededMap<String, Vec<usize>> = SeededMap::default();
    for index in 0..failures.len() {
        let failure = &failures[index];
        if reporter(failure) == (None, None, None) {
            continue;
        }
        let location = failure.culprit.as_ref().map(|frame| (&frame.file, frame.line));
        let system = (failure.kind, failure.system, &failure.backend);
        let request = (failure.verdict, failure.requested_bytes);
        let reporters = known.entry(format!("{system:?} {request:?} {location:?}")).or_default();
        // A rank that fails twice has two failures.
        if reporters.iter().all(|other| reporter(&failures[*other]) != reporter(failure)) {
            reporters.push(index);
            if let Some(first) = failures.get(reporters[0]).filter(|_| reporters[0] != index) {
                let (line, file) = (first.line, first.file.clone());
                (failures[index].same_as, failures[index].same_file) = (Some(line), file);
            }
        }
    }
    failures
}

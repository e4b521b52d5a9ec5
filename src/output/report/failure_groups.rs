//! Groups equal failures of several ranks.

use std::fmt::Write as _;

use crate::explain::ExplainedFailure;
use crate::output::document::Text;

/// A failure, and the same failure on other ranks.
pub(super) struct FailureGroup<'a> {
    /// The first of the log.
    pub(super) first: &'a ExplainedFailure,
    others: Vec<&'a ExplainedFailure>,
}

/// Groups `failures`, in the order of their first occurrence.
pub(super) fn group_failures(failures: &[ExplainedFailure]) -> Vec<FailureGroup<'_>> {
    let mut groups: Vec<FailureGroup> = Vec::new();
    for failure in failures {
        let is_same = |group: &&mut FailureGroup| {
            Some(group.first.line) == failure.same_as && group.first.file == failure.same_file
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.others.push(failure),
            None => groups.push(FailureGroup { first: failure, others: Vec::new() }),
        }
    }
    groups
}

impl FailureGroup<'_> {
    fn all(&self) -> impl Iterator<Item = &ExplainedFailure> {
        [self.first].into_iter().chain(self.others.iter().copied())
    }

    /// Number of occurrences in the log.
    pub(super) fn times(&self) -> u64 {
        self.all().map(|failure| failure.times).sum()
    }

    /// The sources of the messages: `rank 3, node-1`, `ranks 0-6, 9`.
    pub(super) fn source_label(&self) -> String {
        if self.others.is_empty() {
            return source_label(self.first.rank, self.first.source.as_deref());
        }
        let ranks: Vec<u64> = self.all().filter_map(|f| f.rank).map(u64::from).collect();
        if ranks.len() == self.others.len() + 1 {
            return format!("ranks {}", ranges(ranks));
        }
        format!(
            "{} sources, first {}",
            self.others.len() + 1,
            source_label(self.first.rank, self.first.source.as_deref())
        )
    }

    /// The devices, as ranges.
    fn devices(&self) -> Option<String> {
        let devices: Vec<u64> = self.all().filter_map(|failure| failure.device).collect();
        (!devices.is_empty()).then(|| ranges(devices))
    }

    pub(super) fn headline(&self) -> Text {
        self.first.headline(self.devices().as_deref())
    }
}

/// `rank 3, node-1`
pub(super) fn source_label(rank: Option<u32>, source: Option<&str>) -> String {
    let rank = rank.map(|rank| format!("rank {rank}"));
    let parts: Vec<String> = rank.into_iter().chain(source.map(str::to_owned)).collect();
    parts.join(", ")
}

/// `0-6, 9`
fn ranges(mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let _ = match run {
            [number] => write!(text, ", {number}"),
            [first, .., last] => write!(text, ", {first}-{last}"),
            [] => Ok(()),
        };
    }
    text.split_off(2.min(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_become_ranges() {
        assert_eq!(ranges(vec![9, 0, 1, 2, 2, 4, 5]), "0-2, 4-5, 9");
        assert_eq!(ranges(vec![7]), "7");
        assert_eq!(ranges(Vec::new()), "");
    }
}

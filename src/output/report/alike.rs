//! Messages of a log that say the same of several ranks.

use std::fmt::Write as _;

use crate::explain::Failure;

/// A message, and those of other ranks that are like it.
pub(super) struct Alike<'a> {
    /// The first in the log.
    pub(super) first: &'a Failure,
    others: Vec<&'a Failure>,
}

/// `failures` put together, each group where its first stands.
pub(super) fn alike(failures: &[Failure]) -> Vec<Alike<'_>> {
    let mut groups: Vec<Alike> = Vec::new();
    for failure in failures {
        // The first stand in the order of the log.
        let known = failure
            .same_as
            .and_then(|line| groups.binary_search_by_key(&line, |group| group.first.line).ok());
        match known.and_then(|at| groups.get_mut(at)) {
            Some(group) => group.others.push(failure),
            None => groups.push(Alike { first: failure, others: Vec::new() }),
        }
    }
    groups
}

impl Alike<'_> {
    fn all(&self) -> impl Iterator<Item = &Failure> {
        [self.first].into_iter().chain(self.others.iter().copied())
    }

    /// Whether others are like the first.
    pub(super) fn is_many(&self) -> bool {
        !self.others.is_empty()
    }

    /// How often they stand in the log.
    pub(super) fn times(&self) -> u64 {
        self.all().map(|failure| failure.times).sum()
    }

    /// Who wrote them: `rank 3, node-1`, `ranks 0-6, 9`.
    pub(super) fn by(&self) -> String {
        if self.others.is_empty() {
            return by(self.first.rank, self.first.source.as_deref());
        }
        let ranks: Vec<u64> = self.all().filter_map(|f| f.rank).map(u64::from).collect();
        if ranks.len() == self.others.len() + 1 {
            return format!("ranks {}", ranges(ranks));
        }
        format!(
            "{} sources, first {}",
            self.others.len() + 1,
            by(self.first.rank, self.first.source.as_deref())
        )
    }

    /// The indices of their devices.
    pub(super) fn devices(&self) -> Option<String> {
        let devices: Vec<u64> = self.all().filter_map(|failure| failure.device).collect();
        (!devices.is_empty()).then(|| ranges(devices))
    }

    /// What failed.
    pub(super) fn title(&self) -> String {
        self.first.what(self.devices().as_deref())
    }
}

/// `rank 3, node-1`
pub(super) fn by(rank: Option<u32>, source: Option<&str>) -> String {
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
        let [first, ..] = run else { continue };
        let _ = match run {
            [first] => write!(text, ", {first}"),
            [.., last] => write!(text, ", {first}-{last}"),
            [] => Ok(()),
        };
    }
    text.split_off(2.min(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_are_a_range() {
        assert_eq!(ranges(vec![9, 0, 1, 2, 2, 4, 5]), "0-2, 4-5, 9");
        assert_eq!(ranges(vec![7]), "7");
        assert_eq!(ranges(Vec::new()), "");
    }
}

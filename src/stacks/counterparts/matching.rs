//! Pairs the stacks of two lists.

use super::align::{StackLines, pair_up};
use super::names::{Place, Vocabulary};
use crate::base::intern::SeededMap;
use crate::base::warning::words;

words! {
    /// How the stack before was found in the snapshot after.
    #[non_exhaustive]
    pub enum MatchedBy {
        /// The same frames
        Content = "content",
        /// The same functions of the same files; other lines
        LinesMoved = "lines-moved",
        /// The same functions; a file has another name or stands in another directory
        FileMoved = "file-moved",
    }
}

/// A stack to be found on the other side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// Its frames, innermost first.
    pub(crate) places: &'a [Place],
    /// What tells it from others of the same functions: bytes that it holds, requests that it made.
    pub(crate) weight: u64,
}

/// A stack of both sides, or of one: rows of the lists that were matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Before and after.
    pub(crate) rows: [Option<usize>; 2],
    /// `None` for one of one side.
    pub(crate) matched_by: Option<MatchedBy>,
}

/// Every stack of `before` and `after`, once: first among those of the same functions of the same files,
/// then among those whose files moved.
pub(crate) fn matched(
    before: &[Candidate<'_>],
    after: &[Candidate<'_>],
    words: &Vocabulary,
) -> Vec<Pair> {
    let sides = [before, after];
    let mut left = sides.map(|stacks| (0..stacks.len()).collect::<Vec<_>>());
    let mut pairs = Vec::new();
    let same = |place: &Place| place.function;
    let moved = |place: &Place| words.class(place.function);
    for key in [&same as &dyn Fn(&Place) -> u32, &moved] {
        let found = by_functions(sides, &left, key);
        let taken: [Vec<bool>; 2] = [0, 1].map(|side| {
            let mut taken = vec![false; sides[side].len()];
            for (b, a) in &found {
                if let Some(row) = taken.get_mut([*b, *a][side]) {
                    *row = true;
                }
            }
            taken
        });
        for (rows, taken) in left.iter_mut().zip(&taken) {
            rows.retain(|row| taken.get(*row) == Some(&false));
        }
        pairs.extend(found.into_iter().filter_map(|(b, a)| {
            let matched_by = how(before.get(b)?.places, after.get(a)?.places);
            Some(Pair { rows: [Some(b), Some(a)], matched_by: Some(matched_by) })
        }));
    }
    let [before, after] = left;
    pairs.extend(before.into_iter().map(|row| Pair { rows: [Some(row), None], matched_by: None }));
    pairs.extend(after.into_iter().map(|row| Pair { rows: [None, Some(row)], matched_by: None }));
    pairs.sort_unstable_by_key(|pair| pair.rows);
    pairs
}

fn how(before: &[Place], after: &[Place]) -> MatchedBy {
    if before == after {
        MatchedBy::Content
    } else if before.iter().map(|p| p.function).eq(after.iter().map(|p| p.function)) {
        MatchedBy::LinesMoved
    } else {
        MatchedBy::FileMoved
    }
}

/// Pairs of rows among the `left` ones whose frames have the same keys.
fn by_functions(
    sides: [&[Candidate<'_>]; 2],
    left: &[Vec<usize>; 2],
    key: &dyn Fn(&Place) -> u32,
) -> Vec<(usize, usize)> {
    let mut groups: SeededMap<Vec<u32>, [Vec<StackLines>; 2]> = SeededMap::default();
    for (side, (stacks, rows)) in sides.into_iter().zip(left).enumerate() {
        for row in rows {
            let Some(stack) = stacks.get(*row) else { continue };
            let group = groups.entry(stack.places.iter().map(key).collect()).or_default();
            let lines = stack.places.iter().map(|place| place.line).collect();
            if let Some(group) = group.get_mut(side) {
                group.push(StackLines { lines, weight: stack.weight, row: *row });
            }
        }
    }
    let both =
        groups.into_values().filter(|[before, after]| !before.is_empty() && !after.is_empty());
    both.flat_map(|[before, after]| pair_up(before, after)).collect()
}

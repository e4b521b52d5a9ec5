//! Pairs two lists of stacks.

use super::align::{StackLines, align_stacks};
use super::frame_table::{FrameKey, FrameTable};
use crate::base::intern::SeededMap;
use crate::base::warning::words;

words! {
    /// Why two stacks count as the same.
    #[non_exhaustive]
    pub enum MatchedBy {
        /// Same frames
        Content = "content",
        /// Same functions of the same files, on other lines
        LinesMoved = "lines-moved",
        /// Same functions; a file was renamed or moved
        FileMoved = "file-moved",
    }
}

/// A stack to pair.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Innermost first.
    pub frames: &'a [FrameKey],
    /// Distinguishes stacks of the same functions: live bytes, or number of requests.
    pub weight: u64,
}

/// A stack of both lists, or of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Rows in the lists before and after.
    pub rows: [Option<usize>; 2],
    /// `None` if the stack is in one list only.
    pub matched_by: Option<MatchedBy>,
}

/// Pairs stacks with the same functions in the same files, then those whose files moved. Each stack occurs once, the
/// unmatched ones alone.
pub fn pair_stacks(before: &[Candidate<'_>], after: &[Candidate<'_>], table: &FrameTable) -> Vec<Pair> {
    let sides = [before, after];
    let mut unmatched = sides.map(|stacks| (0..stacks.len()).collect::<Vec<_>>());
    let mut pairs = Vec::new();
    let same = |frame: &FrameKey| frame.function;
    let moved = |frame: &FrameKey| table.function_class(frame.function);
    for key in [&same as &dyn Fn(&FrameKey) -> u32, &moved] {
        let found = pair_by_functions(sides, &unmatched, key);
        let mut is_paired = sides.map(|stacks| vec![false; stacks.len()]);
        for (b, a) in &found {
            (is_paired[0][*b], is_paired[1][*a]) = (true, true);
        }
        for (rows, is_paired) in unmatched.iter_mut().zip(&is_paired) {
            rows.retain(|row| !is_paired[*row]);
        }
        pairs.extend(found.into_iter().map(|(b, a)| {
            let matched_by = match_kind(before[b].frames, after[a].frames);
            Pair { rows: [Some(b), Some(a)], matched_by: Some(matched_by) }
        }));
    }
    let [before, after] = unmatched;
    pairs.extend(before.into_iter().map(|row| Pair { rows: [Some(row), None], matched_by: None }));
    pairs.extend(after.into_iter().map(|row| Pair { rows: [None, Some(row)], matched_by: None }));
    pairs.sort_unstable_by_key(|pair| pair.rows);
    pairs
}

fn match_kind(before: &[FrameKey], after: &[FrameKey]) -> MatchedBy {
    if before == after {
        MatchedBy::Content
    } else if before.iter().map(|frame| frame.function).eq(after.iter().map(|frame| frame.function)) {
        MatchedBy::LinesMoved
    } else {
        MatchedBy::FileMoved
    }
}

/// Pairs of `unmatched` rows whose frames have the same keys.
fn pair_by_functions(
    sides: [&[Candidate<'_>]; 2],
    left: &[Vec<usize>; 2],
    key: &dyn Fn(&FrameKey) -> u32,
) -> Vec<(usize, usize)> {
    let mut groups: SeededMap<Vec<u32>, [Vec<StackLines>; 2]> = SeededMap::default();
    for (side, (stacks, rows)) in sides.into_iter().zip(left).enumerate() {
        for row in rows {
            let stack = &stacks[*row];
            let group = groups.entry(stack.frames.iter().map(key).collect()).or_default();
            let lines = stack.frames.iter().map(|frame| frame.line).collect();
            group[side].push(StackLines { lines, weight: stack.weight, row: *row });
        }
    }
    let both = groups.into_values().filter(|[before, after]| !before.is_empty() && !after.is_empty());
    both.flat_map(|[before, after]| align_stacks(before, after)).collect()
}

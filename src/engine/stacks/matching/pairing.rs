//! Pairs two lists of stacks, those of the same functions with each other even if their lines differ.
//!
//! An edit moves lines without reordering them. Either stacks with equal lines are the same and only the others moved,
//! or all of them moved, in order. The pairing that leaves less weight changed wins; on a tie, the former.

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
    let keys: [&dyn Fn(&FrameKey) -> u32; 2] = [&|frame| frame.function, &|frame| table.function_class(frame.function)];
    for key in keys {
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

/// Pairs `unmatched` rows whose frames have the same keys.
fn pair_by_functions(
    sides: [&[Candidate<'_>]; 2],
    unmatched: &[Vec<usize>; 2],
    key: &dyn Fn(&FrameKey) -> u32,
) -> Vec<(usize, usize)> {
    let mut groups: SeededMap<Vec<u32>, [Vec<StackLines>; 2]> = SeededMap::default();
    for (side, (stacks, rows)) in sides.into_iter().zip(unmatched).enumerate() {
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

/// Size limit of the cost table. Beyond it, stacks are paired in order without weighing.
const MAX_CELLS: usize = 1 << 20;

/// A stack of a group with the same functions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StackLines {
    /// Line numbers of its frames.
    lines: Vec<u32>,
    /// See [`Candidate::weight`].
    weight: u64,
    /// Its row in the list of its side.
    row: usize,
}

/// Changed weight, then number of changed stacks, then total lines by which frames moved. Compared in that order.
type PairingCost = (u64, u64, u64);

const IMPOSSIBLE: PairingCost = (u64::MAX, u64::MAX, u64::MAX);

fn add_costs(a: PairingCost, b: PairingCost) -> PairingCost {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1), a.2.saturating_add(b.2))
}

fn pairing_cost(a: &StackLines, b: &StackLines) -> PairingCost {
    let lines = a.lines.iter().zip(&b.lines).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    (a.weight.abs_diff(b.weight), u64::from(a.weight != b.weight), lines)
}

/// Pairs of rows, before and after. A stack without a pair is new or gone.
fn align_stacks(mut before: Vec<StackLines>, mut after: Vec<StackLines>) -> Vec<(usize, usize)> {
    before.sort_unstable();
    after.sort_unstable();
    let (mut pairs, unmatched) = pair_same_lines(&before, &after);
    if unmatched.iter().any(|left| !left.is_empty()) {
        let [unmatched_before, unmatched_after] = &unmatched;
        pairs.extend(align_in_order(unmatched_before, unmatched_after));
        let all_moved = align_in_order(&before.iter().collect::<Vec<_>>(), &after.iter().collect::<Vec<_>>());
        if changed_weight(&all_moved, &before, &after) < changed_weight(&pairs, &before, &after) {
            pairs = all_moved;
        }
    }
    pairs.into_iter().map(|(b, a)| (b.row, a.row)).collect()
}

type Pairs<'a> = Vec<(&'a StackLines, &'a StackLines)>;

/// Pairs stacks with equal lines; also returns the unmatched stacks of both sides.
fn pair_same_lines<'a>(before: &'a [StackLines], after: &'a [StackLines]) -> (Pairs<'a>, [Vec<&'a StackLines>; 2]) {
    let (mut pairs, mut unmatched) = (Vec::new(), [Vec::new(), Vec::new()]);
    let (mut b, mut a) = (before.iter().peekable(), after.iter().peekable());
    while let (Some(x), Some(y)) = (b.peek().copied(), a.peek().copied()) {
        match x.lines.cmp(&y.lines) {
            std::cmp::Ordering::Less => unmatched[0].extend(b.next()),
            std::cmp::Ordering::Greater => unmatched[1].extend(a.next()),
            std::cmp::Ordering::Equal => pairs.extend(b.next().zip(a.next())),
        }
    }
    unmatched[0].extend(b);
    unmatched[1].extend(a);
    (pairs, unmatched)
}

/// The weight that `pairs` leave changed.
fn changed_weight(pairs: &Pairs<'_>, before: &[StackLines], after: &[StackLines]) -> u64 {
    let all = before.iter().chain(after).map(|item| item.weight).fold(0, u64::saturating_add);
    let paired = pairs.iter().flat_map(|(b, a)| [b.weight, a.weight]).fold(0, u64::saturating_add);
    let differing = pairs.iter().map(|(b, a)| b.weight.abs_diff(a.weight)).fold(0, u64::saturating_add);
    all.saturating_sub(paired).saturating_add(differing)
}

/// The cheapest pairing that keeps the order, by dynamic programming as in an edit distance.
fn align_in_order<'a>(before: &[&'a StackLines], after: &[&'a StackLines]) -> Pairs<'a> {
    let (len_before, len_after) = (before.len(), after.len());
    // Use one orientation for both directions, so that the reverse diff finds the same pairs.
    if (len_before, content(before)) > (len_after, content(after)) {
        return align_in_order(after, before).into_iter().map(|(a, b)| (b, a)).collect();
    }
    if len_before.saturating_add(1).saturating_mul(len_after + 1) > MAX_CELLS {
        return before.iter().copied().zip(after.iter().copied()).collect();
    }
    let costs = CostTable::new(before, after);
    let (mut pairs, mut i, mut j) = (Vec::new(), 0, 0);
    while i < len_before && j < len_after {
        let [paired, gone, new] = costs.choices(i, j);
        if paired <= gone && paired <= new {
            pairs.push((before[i], after[j]));
            i += 1;
            j += 1;
        } else if gone <= new {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// The minimum costs of pairing the rests of two lists.
struct CostTable<'p, 'a> {
    before: &'p [&'a StackLines],
    after: &'p [&'a StackLines],
    /// `costs[i * (after.len() + 1) + j]` is that of `before[i..]` and `after[j..]`.
    costs: Vec<PairingCost>,
}

impl<'p, 'a> CostTable<'p, 'a> {
    fn new(before: &'p [&'a StackLines], after: &'p [&'a StackLines]) -> Self {
        let columns = after.len() + 1;
        let mut table = Self { before, after, costs: vec![(0, 0, 0); (before.len() + 1) * columns] };
        for cell in (0..table.costs.len() - 1).rev() {
            let [paired, gone, new] = table.choices(cell / columns, cell % columns);
            table.costs[cell] = paired.min(gone).min(new);
        }
        table
    }

    /// The costs from `before[i]` and `after[j]` on, if these are paired, and if only one of them is skipped.
    fn choices(&self, i: usize, j: usize) -> [PairingCost; 3] {
        let (x, y, columns) = (self.before.get(i), self.after.get(j), self.after.len() + 1);
        let cell = i * columns + j;
        let paired = x.zip(y).map(|(x, y)| add_costs(pairing_cost(x, y), self.costs[cell + columns + 1]));
        let gone = x.map(|x| add_costs((x.weight, 1, 0), self.costs[cell + columns]));
        let new = y.map(|y| add_costs((y.weight, 1, 0), self.costs[cell + 1]));
        [paired, gone, new].map(|cost| cost.unwrap_or(IMPOSSIBLE))
    }
}

/// The lines of each stack, and its weight.
fn content<'a>(items: &[&'a StackLines]) -> Vec<(&'a [u32], u64)> {
    items.iter().map(|item| (item.lines.as_slice(), item.weight)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(of: &[(u32, u64)]) -> Vec<StackLines> {
        of.iter()
            .enumerate()
            .map(|(row, (line, weight))| StackLines { lines: vec![*line], weight: *weight, row })
            .collect()
    }

    fn paired(before: &[(u32, u64)], after: &[(u32, u64)]) -> Vec<(u32, u32)> {
        let pairs = align_stacks(stacks(before), stacks(after)).into_iter();
        let mut lines: Vec<_> = pairs.map(|(b, a)| (before[b].0, after[a].0)).collect();
        lines.sort_unstable();
        lines
    }

    /// The lines of each pair, before and after.
    fn pairs(before: &[(u32, u64)], after: &[(u32, u64)]) -> Vec<(u32, u32)> {
        let (there, mut back) = (paired(before, after), paired(after, before));
        back = back.into_iter().map(|(a, b)| (b, a)).collect();
        back.sort_unstable();
        assert_eq!(there, back, "the reverse direction");
        there
    }

    #[test]
    fn equal_lines_pair_whatever_their_weight() {
        assert_eq!(pairs(&[(26, 1), (27, 9)], &[(26, 9), (27, 1)]), [(26, 26), (27, 27)]);
        assert_eq!(pairs(&[(26, 1)], &[(26, 900)]), [(26, 26)]);
    }

    #[test]
    fn an_inserted_line_moves_all_stacks() {
        assert_eq!(pairs(&[(26, 1), (27, 2)], &[(27, 1), (28, 2)]), [(26, 27), (27, 28)]);
    }

    #[test]
    fn a_removed_and_a_new_stack_leave_the_rest_alone() {
        let (before, after) = ([(26, 1), (27, 2), (30, 3)], [(26, 1), (30, 3), (40, 2)]);
        assert_eq!(pairs(&before, &after), [(26, 26), (27, 40), (30, 30)]);
    }

    #[test]
    fn an_inserted_stack_stays_new() {
        let (before, after) = ([(10, 5), (20, 6), (30, 7)], [(110, 5), (115, 8), (120, 6), (130, 7)]);
        assert_eq!(pairs(&before, &after), [(10, 110), (20, 120), (30, 130)]);
        // Equal weights: the nearest lines.
        assert_eq!(pairs(&[(10, 5), (20, 5)], &[(11, 5), (15, 5), (21, 5)]), [(10, 11), (20, 21)]);
    }

    #[test]
    fn ties_are_broken_the_same_way_in_both_directions() {
        // `pairs` compares the two directions.
        pairs(&[(1, 3), (3, 2), (5, 2), (8, 2)], &[(7, 1), (8, 1), (9, 3)]);
        pairs(&[(0, 1), (2, 1), (5, 3), (7, 2), (8, 2)], &[(0, 1), (3, 1), (10, 1), (11, 3)]);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: 2_000,
            failure_persistence: None,
            ..Default::default()
        })]

        /// Both directions find the same pairs, and leave no more weight changed than pairing equal lines.
        #[test]
        fn never_worse_than_pairing_equal_lines(
            before in proptest::collection::btree_map(0u32..12, 1u64..4, 1..8),
            after in proptest::collection::btree_map(0u32..12, 1u64..4, 1..8),
        ) {
            let [list_before, list_after] = [&before, &after].map(|side| side.clone().into_iter().collect::<Vec<_>>());
            let found = pairs(&list_before, &list_after);
            let same: Vec<_> = before.keys().filter(|l| after.contains_key(l)).map(|l| (*l, *l)).collect();
            let [found, same] =
                [found, same].map(|pairs| pairs.iter().map(|(b, a)| before[b].min(after[a])).sum::<u64>());
            assert!(found >= same);
        }
    }

    #[test]
    fn pairs_large_groups_in_order() {
        let [before, after] = [0, 5000].map(|from| (from..from + 1500).map(|line| (line, 1)).collect::<Vec<_>>());
        assert_eq!(pairs(&before, &after).len(), 1500);
    }
}

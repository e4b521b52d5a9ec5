//! Which of several stacks of the same functions is which, when lines moved.
//!
//! An edit moves lines without changing their order. So there are two readings: the stacks whose lines
//! are the same are the same, and only the others moved; or all of them moved, in order. The one that
//! leaves less weight changed is taken, the first one in doubt.

/// Above this many pairs to weigh, stacks are paired in order without weighing them.
const MAX_CELLS: usize = 1 << 20;

/// One stack of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StackLines {
    /// The lines of its frames.
    pub(super) lines: Vec<u32>,
    /// What tells it from others: see [`super::Candidate`].
    pub(super) weight: u64,
    /// Its row among the stacks of its side.
    pub(super) row: usize,
}

/// Cost of a pairing: the weight that it says has changed, then in how many stacks, then lines by which frames
/// moved.
type PairingCost = (u64, u64, u64);

const NEVER: PairingCost = (u64::MAX, u64::MAX, u64::MAX);

fn plus(a: PairingCost, b: PairingCost) -> PairingCost {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1), a.2.saturating_add(b.2))
}

fn cost(a: &StackLines, b: &StackLines) -> PairingCost {
    let lines = a.lines.iter().zip(&b.lines).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    (a.weight.abs_diff(b.weight), u64::from(a.weight != b.weight), lines)
}

/// Pairs of rows, before and after; a stack without a pair is new or gone.
pub(super) fn pair_up(
    mut before: Vec<StackLines>,
    mut after: Vec<StackLines>,
) -> Vec<(usize, usize)> {
    before.sort_unstable();
    after.sort_unstable();
    let (mut pairs, left) = same_lines(&before, &after);
    if left.iter().any(|left| !left.is_empty()) {
        let [left_before, left_after] = &left;
        pairs.extend(in_order(left_before, left_after));
        let moved = in_order(&before.iter().collect::<Vec<_>>(), &after.iter().collect::<Vec<_>>());
        if changed(&moved, &before, &after) < changed(&pairs, &before, &after) {
            pairs = moved;
        }
    }
    pairs.into_iter().map(|(b, a)| (b.row, a.row)).collect()
}

type Pairs<'a> = Vec<(&'a StackLines, &'a StackLines)>;

/// Pairs of the same lines, and who is left on either side.
fn same_lines<'a>(
    before: &'a [StackLines],
    after: &'a [StackLines],
) -> (Pairs<'a>, [Vec<&'a StackLines>; 2]) {
    let (mut pairs, mut left) = (Vec::new(), [Vec::new(), Vec::new()]);
    let (mut b, mut a) = (before.iter().peekable(), after.iter().peekable());
    while let (Some(x), Some(y)) = (b.peek().copied(), a.peek().copied()) {
        match x.lines.cmp(&y.lines) {
            std::cmp::Ordering::Less => left[0].extend(b.next()),
            std::cmp::Ordering::Greater => left[1].extend(a.next()),
            std::cmp::Ordering::Equal => pairs.extend(b.next().zip(a.next())),
        }
    }
    left[0].extend(b);
    left[1].extend(a);
    (pairs, left)
}

/// Weight that `pairs` leave changed.
fn changed(pairs: &Pairs<'_>, before: &[StackLines], after: &[StackLines]) -> u64 {
    let sum = |weight: &mut dyn Iterator<Item = u64>| weight.fold(0, u64::saturating_add);
    let all = sum(&mut before.iter().chain(after).map(|item| item.weight));
    let paired = sum(&mut pairs.iter().flat_map(|(b, a)| [b.weight, a.weight]));
    let differing = sum(&mut pairs.iter().map(|(b, a)| b.weight.abs_diff(a.weight)));
    all.saturating_sub(paired).saturating_add(differing)
}

/// The cheapest pairing that keeps the order.
fn in_order<'a>(before: &[&'a StackLines], after: &[&'a StackLines]) -> Pairs<'a> {
    // One orientation for both ways round, so that the reverse diff finds the same pairs.
    let content = |items: &[&'a StackLines]| -> Vec<(&'a [u32], u64)> {
        items.iter().map(|item| (item.lines.as_slice(), item.weight)).collect()
    };
    let (len_before, len_after) = (before.len(), after.len());
    if (len_before, content(before)) > (len_after, content(after)) {
        return in_order(after, before).into_iter().map(|(a, b)| (b, a)).collect();
    }
    let columns = len_after + 1;
    if len_before.saturating_add(1).saturating_mul(columns) > MAX_CELLS {
        return before.iter().copied().zip(after.iter().copied()).collect();
    }
    // least[i * columns + j]: the least cost of all from the i-th and the j-th on.
    let mut least = vec![(0, 0, 0); (len_before + 1) * columns];
    let at = |least: &[PairingCost], i: usize, j: usize| {
        least.get(i * columns + j).copied().unwrap_or(NEVER)
    };
    let choices = |least: &[PairingCost], i: usize, j: usize| {
        let (x, y) = (before.get(i), after.get(j));
        let paired = x.zip(y).map_or(NEVER, |(x, y)| plus(cost(x, y), at(least, i + 1, j + 1)));
        let gone = x.map_or(NEVER, |x| plus((x.weight, 1, 0), at(least, i + 1, j)));
        let new = y.map_or(NEVER, |y| plus((y.weight, 1, 0), at(least, i, j + 1)));
        [paired, gone, new]
    };
    for i in (0..=len_before).rev() {
        for j in (0..=len_after).rev() {
            if (i, j) != (len_before, len_after)
                && let Some(best) = choices(&least, i, j).into_iter().min()
                && let Some(cell) = least.get_mut(i * columns + j)
            {
                *cell = best;
            }
        }
    }
    let (mut pairs, mut i, mut j) = (Vec::new(), 0, 0);
    while i < len_before && j < len_after {
        let [paired, gone, new] = choices(&least, i, j);
        if paired <= gone && paired <= new {
            pairs.extend(before.get(i).copied().zip(after.get(j).copied()));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn items(of: &[(u32, u64)]) -> Vec<StackLines> {
        of.iter()
            .enumerate()
            .map(|(row, (line, weight))| StackLines { lines: vec![*line], weight: *weight, row })
            .collect()
    }

    /// Lines before and after of every pair.
    fn pairs(before: &[(u32, u64)], after: &[(u32, u64)]) -> Vec<(u32, u32)> {
        let paired = |before: &[(u32, u64)], after: &[(u32, u64)]| {
            let pairs = pair_up(items(before), items(after)).into_iter();
            let mut lines: Vec<_> = pairs.map(|(b, a)| (before[b].0, after[a].0)).collect();
            lines.sort_unstable();
            lines
        };
        let (there, mut back) = (paired(before, after), paired(after, before));
        back = back.into_iter().map(|(a, b)| (b, a)).collect();
        back.sort_unstable();
        assert_eq!(there, back, "the other way round");
        there
    }

    #[test]
    fn same_lines_are_the_same_stack_whatever_they_hold() {
        assert_eq!(pairs(&[(26, 1), (27, 9)], &[(26, 9), (27, 1)]), [(26, 26), (27, 27)]);
        assert_eq!(pairs(&[(26, 1)], &[(26, 900)]), [(26, 26)]);
    }

    #[test]
    fn a_line_put_in_above_moves_all_of_them() {
        assert_eq!(pairs(&[(26, 1), (27, 2)], &[(27, 1), (28, 2)]), [(26, 27), (27, 28)]);
    }

    #[test]
    fn one_gone_and_another_new_leave_the_rest_alone() {
        let (before, after) = ([(26, 1), (27, 2), (30, 3)], [(26, 1), (30, 3), (40, 2)]);
        assert_eq!(pairs(&before, &after), [(26, 26), (27, 40), (30, 30)]);
    }

    #[test]
    fn a_new_one_in_between_stays_new() {
        let (before, after) =
            ([(10, 5), (20, 6), (30, 7)], [(110, 5), (115, 8), (120, 6), (130, 7)]);
        assert_eq!(pairs(&before, &after), [(10, 110), (20, 120), (30, 130)]);
        // All alike: the nearest.
        assert_eq!(pairs(&[(10, 5), (20, 5)], &[(11, 5), (15, 5), (21, 5)]), [(10, 11), (20, 21)]);
    }

    #[test]
    fn equally_cheap_pairings_are_chosen_alike_both_ways_round() {
        // `pairs` compares the two ways.
        pairs(&[(1, 3), (3, 2), (5, 2), (8, 2)], &[(7, 1), (8, 1), (9, 3)]);
        pairs(&[(0, 1), (2, 1), (5, 3), (7, 2), (8, 2)], &[(0, 1), (3, 1), (10, 1), (11, 3)]);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: 2_000,
            failure_persistence: None,
            ..Default::default()
        })]

        /// Stacks of one function, much alike: the same pairs there and back, and no more weight changed than
        /// by the same lines.
        #[test]
        fn whatever_the_lines(
            before in proptest::collection::btree_map(0u32..12, 1u64..4, 1..8),
            after in proptest::collection::btree_map(0u32..12, 1u64..4, 1..8),
        ) {
            let list = |of: &std::collections::BTreeMap<u32, u64>| -> Vec<(u32, u64)> {
                of.iter().map(|(line, weight)| (*line, *weight)).collect()
            };
            let found = pairs(&list(&before), &list(&after));
            let all: u64 = before.values().chain(after.values()).sum();
            let kept = |pairs: &[(u32, u32)]| -> u64 {
                let same = pairs.iter().map(|(b, a)| 2 * before[b].min(after[a]));
                same.sum()
            };
            let same: Vec<_> =
                before.keys().filter(|l| after.contains_key(l)).map(|l| (*l, *l)).collect();
            assert!(all - kept(&found) <= all - kept(&same));
        }
    }

    #[test]
    fn too_many_to_weigh_are_paired_in_order() {
        let many = |from: u32| (from..from + 1500).map(|line| (line, 1)).collect::<Vec<_>>();
        assert_eq!(pairs(&many(0), &many(5000)).len(), 1500);
    }
}

//! The longest common subsequence of two lists, for a relation that need not be an equality.

/// The search stops at this many unpaired elements, because its cost grows with their number.
const MAX_UNPAIRED: usize = 2048;

/// Pairs the indexes of two lists, in order and as many as possible, such that `are_paired` holds; `None` if too many
/// elements remain unpaired. Uses the greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its Variations"
/// (1986), which needs no transitive relation.
pub(super) fn align(
    left_len: usize,
    right_len: usize,
    are_paired: impl Fn(usize, usize) -> bool,
) -> Option<Vec<(usize, usize)>> {
    // The furthest index of the left list on each diagonal, `left - right`, after a number of unpaired elements.
    let max_unpaired = MAX_UNPAIRED.min(left_len + right_len);
    let mut furthest: Vec<usize> = vec![0; 2 * max_unpaired + 3];
    let at = |diagonal: isize| (diagonal + max_unpaired.cast_signed() + 1).cast_unsigned();
    let mut history: Vec<Vec<usize>> = Vec::new();
    let unpaired = 'search: {
        for unpaired in 0..=max_unpaired.cast_signed() {
            for diagonal in (-unpaired..=unpaired).step_by(2) {
                let is_from_above = comes_from_above(&furthest, at(diagonal), diagonal, unpaired);
                let mut left = if is_from_above { furthest[at(diagonal) + 1] } else { furthest[at(diagonal) - 1] + 1 };
                let Some(mut right) = left.checked_add_signed(-diagonal) else { continue };
                while left < left_len && right < right_len && are_paired(left, right) {
                    (left, right) = (left + 1, right + 1);
                }
                furthest[at(diagonal)] = left;
                if left >= left_len && right >= right_len {
                    break 'search Some(unpaired);
                }
            }
            let range = at(-unpaired)..at(unpaired) + 1;
            history.push(furthest[range].to_vec());
        }
        None
    }?;
    Some(trace_back(left_len, right_len, unpaired, &history))
}

/// Whether the furthest path on a diagonal comes from the one above it, by skipping an element of the right list.
fn comes_from_above(furthest: &[usize], at: usize, diagonal: isize, unpaired: isize) -> bool {
    diagonal == -unpaired || (diagonal != unpaired && furthest[at - 1] < furthest[at + 1])
}

/// Walks the path back and collects its pairs.
fn trace_back(left_len: usize, right_len: usize, unpaired: isize, history: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let (mut left, mut right) = (left_len, right_len);
    let mut pairs = Vec::new();
    for unpaired in (1..=unpaired).rev() {
        let reached_left = &history[(unpaired - 1).cast_unsigned()];
        // Holds the diagonals from `1 - unpaired` to `unpaired - 1`, of which every second was reached. Diagonals
        // beyond them are not compared, so the fallbacks to 0 below are never used on a path that exists.
        let reached = |diagonal: isize| {
            let index = diagonal + unpaired - 1;
            usize::try_from(index).ok().and_then(|index| reached_left.get(index)).copied()
        };
        let diagonal = left.cast_signed() - right.cast_signed();
        let (below, above) = (reached(diagonal - 1), reached(diagonal + 1));
        let is_from_above = diagonal == -unpaired || (diagonal != unpaired && below.unwrap_or(0) < above.unwrap_or(0));
        let from = if is_from_above { diagonal + 1 } else { diagonal - 1 };
        let from_left = if is_from_above { above } else { below }.unwrap_or(0);
        let start = if is_from_above { from_left } else { from_left + 1 };
        while left > start {
            (left, right) = (left - 1, right - 1);
            pairs.push((left, right));
        }
        left = from_left;
        right = left.checked_add_signed(-from).unwrap_or(0);
    }
    while left > 0 && right > 0 {
        (left, right) = (left - 1, right - 1);
        pairs.push((left, right));
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aligned(a: &str, b: &str) -> Vec<(usize, usize)> {
        let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
        align(a.len(), b.len(), |x, y| a[x] == b[y]).unwrap()
    }

    #[test]
    fn the_textbook_example() {
        assert_eq!(aligned("abcabba", "cbabac").len(), 4);
        assert_eq!(aligned("", ""), []);
        assert_eq!(aligned("abc", ""), []);
        assert_eq!(aligned("abc", "abc"), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(aligned("xabc", "abcy"), [(1, 0), (2, 1), (3, 2)]);
    }

    #[test]
    fn the_search_stops_at_too_many_unpaired() {
        assert_eq!(align(5000, 5000, |_, _| false), None);
    }

    proptest::proptest! {
        /// As long as dynamic programming finds, for a relation that is not transitive.
        #[test]
        fn nothing_longer_exists(
            a in proptest::collection::vec(0u8..6, 0..24),
            b in proptest::collection::vec(0u8..6, 0..24),
        ) {
            let are_paired = |x: usize, y: usize| a[x].abs_diff(b[y]) <= 1;
            let pairs = align(a.len(), b.len(), are_paired).unwrap();
            assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
            assert!(pairs.iter().all(|(x, y)| are_paired(*x, *y)));
            let mut longest = vec![vec![0usize; b.len() + 1]; a.len() + 1];
            for x in 0..a.len() {
                for y in 0..b.len() {
                    let diagonal = if are_paired(x, y) { longest[x][y] + 1 } else { 0 };
                    longest[x + 1][y + 1] = diagonal.max(longest[x][y + 1]).max(longest[x + 1][y]);
                }
            }
            assert_eq!(pairs.len(), longest[a.len()][b.len()]);
        }
    }
}

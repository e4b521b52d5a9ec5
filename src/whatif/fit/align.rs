//! The longest common subsequence of two lists, by a relation that need not be an equality.

/// Above this many elements without a partner the search is given up: its cost grows with their number.
const MOST_LEFT: usize = 2048;

/// Pairs of rows of lists of `own` and `others` elements, in order and as many as can be, of which `are_alike` holds;
/// `None` where too many have no partner. By Myers' greedy algorithm, "An O(ND) Difference Algorithm and Its
/// Variations" (1986): it follows diagonals as far as they go, and never asks that the relation be transitive.
pub(super) fn aligned(
    own: usize,
    others: usize,
    are_alike: impl Fn(usize, usize) -> bool,
) -> Option<Vec<(usize, usize)>> {
    // The furthest row of `own` on each diagonal, `own - other`, after so many unpaired elements.
    let most = MOST_LEFT.min(own + others);
    let mut furthest: Vec<usize> = vec![0; 2 * most + 3];
    let at = |diagonal: isize| (diagonal + most.cast_signed() + 1).cast_unsigned();
    let mut history: Vec<Vec<usize>> = Vec::new();
    let found = 'search: {
        for left in 0..=most.cast_signed() {
            for diagonal in (-left..=left).step_by(2) {
                let is_down = is_from_below(&furthest, at(diagonal), diagonal, left);
                let mut row = if is_down {
                    furthest[at(diagonal) + 1]
                } else {
                    furthest[at(diagonal) - 1] + 1
                };
                let Some(mut other) = row.checked_add_signed(-diagonal) else { continue };
                while row < own && other < others && are_alike(row, other) {
                    (row, other) = (row + 1, other + 1);
                }
                furthest[at(diagonal)] = row;
                if row >= own && other >= others {
                    break 'search Some(left);
                }
            }
            let range = at(-left)..at(left) + 1;
            history.push(furthest[range].to_vec());
        }
        None
    }?;
    Some(pairs_back(own, others, found, &history))
}

/// Whether the furthest path on a diagonal comes from the one above it, by an element of the other list.
fn is_from_below(furthest: &[usize], at: usize, diagonal: isize, left: isize) -> bool {
    diagonal == -left || (diagonal != left && furthest[at - 1] < furthest[at + 1])
}

/// Walks the path back and collects its diagonals.
fn pairs_back(
    own: usize,
    others: usize,
    found: isize,
    history: &[Vec<usize>],
) -> Vec<(usize, usize)> {
    let (mut row, mut other) = (own, others);
    let mut pairs = Vec::new();
    for left in (1..=found).rev() {
        let before = &history[(left - 1).cast_unsigned()];
        // Of the diagonals -(left - 1)..=left - 1, every second of which was reached.
        let reached = |diagonal: isize| {
            let index = diagonal + left - 1;
            usize::try_from(index).ok().and_then(|index| before.get(index)).copied()
        };
        let diagonal = row.cast_signed() - other.cast_signed();
        let (below, above) = (reached(diagonal - 1), reached(diagonal + 1));
        let is_down =
            diagonal == -left || (diagonal != left && below.unwrap_or(0) < above.unwrap_or(0));
        let from = if is_down { diagonal + 1 } else { diagonal - 1 };
        let from_row = if is_down { above } else { below }.unwrap_or(0);
        let start = if is_down { from_row } else { from_row + 1 };
        while row > start {
            (row, other) = (row - 1, other - 1);
            pairs.push((row, other));
        }
        row = from_row;
        other = row.checked_add_signed(-from).unwrap_or(0);
    }
    while row > 0 && other > 0 {
        (row, other) = (row - 1, other - 1);
        pairs.push((row, other));
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(a: &str, b: &str) -> Vec<(usize, usize)> {
        let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
        aligned(a.len(), b.len(), |x, y| a[x] == b[y]).unwrap()
    }

    #[test]
    fn the_textbook_example() {
        assert_eq!(of("abcabba", "cbabac").len(), 4);
        assert_eq!(of("", ""), []);
        assert_eq!(of("abc", ""), []);
        assert_eq!(of("abc", "abc"), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(of("xabc", "abcy"), [(1, 0), (2, 1), (3, 2)]);
    }

    #[test]
    fn too_many_without_a_partner_are_given_up() {
        assert_eq!(aligned(5000, 5000, |_, _| false), None);
    }

    proptest::proptest! {
        /// As long as dynamic programming says, of a relation that is not transitive.
        #[test]
        fn nothing_longer_exists(
            a in proptest::collection::vec(0u8..6, 0..24),
            b in proptest::collection::vec(0u8..6, 0..24),
        ) {
            let alike = |x: usize, y: usize| a[x].abs_diff(b[y]) <= 1;
            let pairs = aligned(a.len(), b.len(), alike).unwrap();
            assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
            assert!(pairs.iter().all(|(x, y)| alike(*x, *y)));
            let mut longest = vec![vec![0usize; b.len() + 1]; a.len() + 1];
            for x in 0..a.len() {
                for y in 0..b.len() {
                    let diagonal = if alike(x, y) { longest[x][y] + 1 } else { 0 };
                    longest[x + 1][y + 1] = diagonal.max(longest[x][y + 1]).max(longest[x + 1][y]);
                }
            }
            assert_eq!(pairs.len(), longest[a.len()][b.len()]);
        }
    }
}

//! The shift by which the end of a sequence repeats.

/// The end of a sequence equals what is `period` earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repetition {
    /// The shift, in elements.
    pub period: usize,
    /// Number of equal elements.
    pub matched: usize,
}

/// The shift of at least `min_period` with the longest match that ends at the end of `sequence`; of several the
/// shortest. `None` if the last element is unique.
pub(super) fn longest_repetition(sequence: &[u32], min_period: usize) -> Option<Repetition> {
    if min_period >= sequence.len() {
        return None;
    }
    let matches = reversed_z_function(sequence);
    let candidates = matches.iter().enumerate().skip(min_period.max(1));
    let (period, matched) = candidates.rev().max_by_key(|(_, matched)| **matched)?;
    let matched = *matched as usize;
    (matched > 0).then_some(Repetition { period, matched })
}

/// For each shift, how many of the last elements equal those that many places earlier.
fn reversed_z_function(sequence: &[u32]) -> Vec<u32> {
    let len = sequence.len();
    let at = |index: usize| sequence[len - 1 - index];
    let mut matches = vec![0u32; len];
    let (mut left, mut right) = (0, 0);
    for shift in 1..len {
        let mut equal = if shift < right { (right - shift).min(matches[shift - left] as usize) } else { 0 };
        while shift + equal < len && at(equal) == at(shift + equal) {
            equal += 1;
        }
        matches[shift] = crate::base::ids::to_u32(equal);
        if shift + equal > right {
            (left, right) = (shift, shift + equal);
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(text: &str, min_period: usize) -> Option<(usize, usize)> {
        let sequence: Vec<u32> = text.bytes().map(u32::from).collect();
        longest_repetition(&sequence, min_period).map(|found| (found.period, found.matched))
    }

    #[test]
    fn the_longest_match_is_the_period() {
        assert_eq!(found_in("abc", 1), None, "nothing repeats");
        assert_eq!(found_in("setupabcabcab", 1), Some((3, 5)));
        assert_eq!(found_in("xaaaa", 1), Some((1, 3)));
        assert_eq!(found_in("xaabaabaab", 1), Some((3, 6)), "the inner loop is shorter");
        assert_eq!(found_in("xaabaabaa", 2), Some((3, 5)));
        assert_eq!(found_in("abababab", 3), Some((4, 4)), "a multiple of the period, if that is too short");
        assert_eq!(found_in("abab", 9), None);
        assert_eq!(found_in("", 0), None);
    }

    #[test]
    fn matches_equal_those_of_a_direct_comparison() {
        let sequence: Vec<u32> = (0..300u32).map(|n| (n * n / 7) % 3).collect();
        for (shift, matched) in reversed_z_function(&sequence).iter().enumerate().skip(1) {
            let pairs = sequence.iter().rev().zip(sequence.iter().rev().skip(shift));
            assert_eq!(*matched as usize, pairs.take_while(|(a, b)| a == b).count());
        }
    }
}

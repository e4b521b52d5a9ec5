//! The ranges that a sequence has in addition to a shorter one, if each repeats what is right before it.

use std::cmp::Reverse;

use super::op_sequence::Token;

/// A range of the longer sequence, a whole number of periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Insertion {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The smallest period of the range and of what is before it.
    pub(super) period: usize,
}

impl Insertion {
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }
}

/// Compared tokens, at most: about half a second.
const MAX_WORK: usize = 1 << 27;

/// The insertions without which `longer` is `shorter`. Where the sequences begin to differ, the longer one goes on with
/// a period in which the shorter one has ended; both continue equally where the period ends in the longer one. If several
/// periods end, the longest range is the insertion.
pub(super) fn find_insertions(shorter: &[Token], longer: &[Token]) -> Option<Vec<Insertion>> {
    let (mut left, mut right, mut work) = (0, 0, 0);
    let mut found = Vec::new();
    loop {
        let common = shorter[left..].iter().zip(&longer[right..]).take_while(|(a, b)| a == b).count();
        (left, right) = (left + common, right + common);
        if left == shorter.len() && right == longer.len() {
            return Some(found);
        }
        let max_len = (longer.len() - right).saturating_sub(shorter.len() - left);
        work += common + 2 * max_len;
        let insertion = longest_at(longer, right, max_len).filter(|_| work <= MAX_WORK)?;
        right = insertion.end;
        found.push(insertion);
    }
}

/// The longest range from `start` on, of at most `max_len`, that repeats what is before it and ends where the period
/// does.
fn longest_at(tokens: &[Token], start: usize, max_len: usize) -> Option<Insertion> {
    let from = start - max_len.min(start);
    // One token more shows whether the period ends.
    let end = (start + max_len + 1).min(tokens.len());
    let lengths = common_prefixes(&tokens[start..end], &tokens[from..end]);
    (from..start)
        .map(|place| (start - place, lengths[place - from]))
        .filter(|(period, len)| *len > 0 && *len <= max_len && len.is_multiple_of(*period))
        .map(|(period, len)| Insertion { start, end: start + len, period })
        .max_by_key(|insertion| (insertion.end, Reverse(insertion.period)))
}

/// For each suffix of `text`, the length of the longest common prefix with `pattern` (the Z function).
fn common_prefixes(pattern: &[Token], text: &[Token]) -> Vec<usize> {
    let own = z_function(pattern, pattern, &[]);
    z_function(pattern, text, &own)
}

/// The Z function of `text` for `pattern`, given that of `pattern` for itself; without it, `text` is the pattern.
fn z_function(pattern: &[Token], text: &[Token], own: &[usize]) -> Vec<usize> {
    let mut lengths: Vec<usize> = Vec::with_capacity(text.len());
    let is_own = own.is_empty();
    // The match that ends last.
    let (mut match_start, mut match_end) = (0, 0);
    for start in 0..text.len() {
        if is_own && start == 0 {
            lengths.push(pattern.len());
            continue;
        }
        let mut len = 0;
        if start < match_end {
            let known = if is_own { lengths[start - match_start] } else { own[start - match_start] };
            len = known.min(match_end - start);
        }
        while len < pattern.len() && start + len < text.len() && text[start + len] == pattern[len] {
            len += 1;
        }
        if start + len > match_end {
            (match_start, match_end) = (start, start + len);
        }
        lengths.push(len);
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        text.bytes().map(u64::from).collect()
    }

    fn inserted(shorter: &str, longer: &str) -> Option<Vec<String>> {
        let found = find_insertions(&tokens(shorter), &tokens(longer))?;
        Some(found.iter().map(|at| format!("{}/{}", &longer[at.start..at.end], at.period)).collect())
    }

    #[test]
    fn repetitions_are_found() {
        assert_eq!(inserted("pxyzxyzs", "pxyzxyzxyzxyzs"), Some(vec!["xyzxyz/3".to_owned()]));
        assert_eq!(inserted("abcd", "abcd"), Some(vec![]));
        // A forward and a backward pass.
        let both = ["fgfg/2", "bcbc/2"].map(str::to_owned);
        assert_eq!(inserted("fgfgbcbcs", "fgfgfgfgbcbcbcbcs"), Some(both.to_vec()));
        assert_eq!(inserted("abc", "abxc"), None);
        assert_eq!(inserted("abcc", "abc"), None);
    }
}

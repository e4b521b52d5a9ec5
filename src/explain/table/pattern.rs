//! Patterns of messages: printed text in which `…` stands for any text and `{}` for a number.
//!
//! `^` at the start and `$` at the end bind a pattern to the whole line, without blanks around it.

use super::amount::split_number;
use serde::Deserialize;

const ANY: char = '…';
const NUMBER: &str = "{}";

/// A pattern, as a table has it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl Pattern {
    /// The byte at which the pattern starts in `text`, in capital or small letters.
    pub fn find(&self, text: &str) -> Option<usize> {
        let (text, pattern) = (text.to_ascii_lowercase(), self.0.to_ascii_lowercase());
        let is_whole = pattern.starts_with('^');
        let skipped = if is_whole { text.len() - text.trim_start().len() } else { 0 };
        let text = text.get(skipped..)?;
        let (mut start, mut end) = (None, 0);
        for part in pattern.trim_start_matches('^').trim_end_matches('$').split(ANY) {
            let (at, len) = find_part(text.get(end..)?, part)?;
            start = start.or(Some(end + at));
            end += at + len;
        }
        let is_bound_at_start = !is_whole || start == Some(0);
        let is_bound_at_end = !pattern.ends_with('$') || end == text.trim_end().len();
        start.filter(|_| is_bound_at_start && is_bound_at_end).map(|start| start + skipped)
    }

    /// The text from the number on, for a pattern with text before its number, or else the text up to the number.
    pub fn find_number<'t>(&self, text: &'t str) -> Option<Side<'t>> {
        if let Some(behind) = self.0.strip_prefix(NUMBER) {
            return text.split_once(behind).map(|(before, _)| Side::Before(before));
        }
        let before = self.0.split_once(NUMBER)?.0;
        let rest = before.split(ANY).try_fold(text, |rest, part| Some(rest.split_once(part)?.1))?;
        Some(Side::Behind(rest))
    }

    /// The longest printed text of the pattern: a line without it cannot match.
    pub fn longest_literal(&self) -> &str {
        let text = self.0.trim_start_matches('^').trim_end_matches('$');
        text.split(ANY).flat_map(|part| part.split(NUMBER)).max_by_key(|literal| literal.len()).unwrap_or_default()
    }
}

/// The side of a text on which the number of a pattern is.
pub enum Side<'t> {
    /// The text starts with it.
    Behind(&'t str),
    /// The text ends with it.
    Before(&'t str),
}

/// The position and length of `part` in `text`.
fn find_part(text: &str, part: &str) -> Option<(usize, usize)> {
    let (first, rest) = part.split_once(NUMBER).map_or((part, None), |(first, rest)| (first, Some(rest)));
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let is_cut_number = |at: usize| {
        let (before, behind) = (text.get(..at).unwrap_or_default(), text.get(at + first.len()..).unwrap_or_default());
        is_digit(first.chars().next()) && is_digit(before.chars().next_back())
            || is_digit(first.chars().next_back()) && is_digit(behind.chars().next())
    };
    let Some(rest) = rest else {
        // No number of any value.
        let mut found = text.match_indices(first).map(|(at, _)| at);
        return found.find(|at| !is_cut_number(*at)).map(|at| (at, first.len()));
    };
    text.match_indices(first).find_map(|(at, _)| {
        let number = text.get(at + first.len()..)?;
        let (digits, behind) = split_number(number).filter(|_| number.starts_with(|c: char| c.is_ascii_digit()))?;
        let next = rest.split(NUMBER).next()?;
        let (skipped, len) = find_part(behind, rest).filter(|_| behind.starts_with(next))?;
        (skipped == 0).then_some((at, first.len() + digits.len() + len))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_in_order_with_numbers_and_bounds() {
        let find = |pattern: &str, text: &str| Pattern(pattern.to_owned()).find(text);
        assert_eq!(find("b…d", "abcd"), Some(1));
        assert_eq!(find("d…b", "abcd"), None);
        assert_eq!(find("code {}, x", "exit code , code 137, x"), Some(12));
        assert_eq!(find("code {}", "exit code x"), None);
        assert_eq!(find("CODE 137", "exit Code 1370, code 137"), Some(16));
        assert_eq!(find("code 137$", "exit code 137 means"), None);
        assert_eq!(find("{}/{} ready", "a 1/2 ready"), Some(2));
        assert_eq!(find("^Killed$", "  Killed "), Some(2));
        assert_eq!(find("^Killed$", "Killed by"), None);
        assert_eq!(find("^a…b$", "a x b"), Some(0));
        assert_eq!(Pattern("^a {}bcd…ef$".to_owned()).longest_literal(), "bcd");
    }
}

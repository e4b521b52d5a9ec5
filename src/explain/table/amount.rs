//! Parses printed amounts of memory, such as `5.19 GiB`, `384.00 MiB` and `0 bytes`, and finds patterns of messages: printed
//! text in which `…` stands for any text and `{}` for a number.
//!
//! `^` at the start and `$` at the end bind a pattern to the whole line, without blanks around it.

use serde::Deserialize;

/// Larger numbers are not amounts: 2^64 - 1, for "unlimited" and "unknown", is printed as 17179869184 GiB.
const MAX_BYTES: f64 = 4.0e18;
/// A comma before three digits is a decimal comma from this unit on: no device has thousands of GiB.
const MIN_UNGROUPED: f64 = 1024.0 * 1024.0 * 1024.0;

/// An amount with its rounding error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedAmount {
    /// The printed number in bytes.
    pub bytes: u64,
    /// Largest possible difference between the true number and `bytes`.
    pub error_bytes: u64,
    /// As printed.
    pub text: String,
}

impl PrintedAmount {
    /// A number printed without rounding.
    pub fn exact(bytes: u64) -> Self {
        Self { bytes, error_bytes: 0, text: format!("{bytes} bytes") }
    }

    /// Parses the number and unit at the start of `text`, after blanks. All of PyTorch's units are powers of 1024, even
    /// the `GB` of its Metal backend. Printed decimals are rounded.
    pub fn at_start(text: &str) -> Option<Self> {
        let (number, rest) = split_number(text.trim_start())?;
        // NumPy prints `189. MiB`.
        let rest = rest.strip_prefix('.').unwrap_or(rest).trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = rest.get(..letters)?;
        let scale = scale(unit)?;
        let number = without_commas(number, scale);
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let value = number.parse::<f64>().ok()? * scale;
        if !(0.0..MAX_BYTES).contains(&value) {
            return None;
        }
        let error =
            if scale > 1.0 { 0.5 * scale / 10f64.powi(i32::try_from(decimals.min(9)).unwrap_or(9)) } else { 0.0 };
        Some(Self { bytes: to_bytes(value), error_bytes: to_bytes(error), text: format!("{number} {unit}") })
    }

    /// Like [`Self::at_start`], for other systems: a number without unit is in bytes, and in a pair (`19.77/22.05 GiB`)
    /// both numbers have the unit of the second.
    pub fn at_start_lenient(text: &str) -> Option<Self> {
        if let Some(amount) = Self::at_start(text.trim_start_matches('(')) {
            return Some(amount);
        }
        let (number, rest) = split_number(text.trim_start_matches(|c: char| !c.is_ascii_digit()))?;
        if let Some(second) = rest.strip_prefix('/') {
            let (_, unit) = split_number(second)?;
            return Self::at_start(&format!("{number}{}", unit.get(..8).unwrap_or(unit)));
        }
        without_commas(number, 1.0).parse().ok().map(Self::exact)
    }

    /// Parses the amount at the end of `text`, before blanks.
    pub fn at_end(text: &str) -> Option<Self> {
        let text = text.trim_end();
        let unit = end_of_last(text, |c| !c.is_ascii_alphabetic());
        let number = text.get(..unit)?.trim_end();
        let start = end_of_last(number, |c| !is_number_char(c));
        Self::at_start(text.get(start..)?.trim_start_matches(['.', ',']))
    }
}

/// A digit, a point or a comma.
pub(in crate::explain) fn is_number_char(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '.' | ',')
}

/// Splits off the number at the start of `text`, with its points and commas.
pub(super) fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c| !is_number_char(c)).unwrap_or(text.len());
    let number = text.get(..end)?.trim_end_matches(['.', ',']);
    Some((number, text.get(number.len()..)?)).filter(|_| !number.is_empty())
}

/// `number` with a decimal point at most. A comma groups digits (`8,589,934,592`), or is a decimal comma (`7,79 GiB`):
/// units of a GiB and more have no groups.
fn without_commas(number: &str, scale: f64) -> String {
    let has_groups = number.split(',').skip(1).all(|part| part.split('.').next().unwrap_or(part).len() == 3);
    if has_groups && (scale < MIN_UNGROUPED || number.matches(',').count() > 1) {
        return number.replace(',', "");
    }
    number.replacen(',', ".", 1)
}

/// The byte after the last character that `matches`; 0 if there is none.
fn end_of_last(text: &str, matches: impl Fn(char) -> bool) -> usize {
    text.char_indices().rev().find(|(_, c)| matches(*c)).map_or(0, |(at, c)| at + c.len_utf8())
}

fn scale(unit: &str) -> Option<f64> {
    Some(match unit {
        "bytes" | "B" => 1.0,
        "KiB" | "KB" | "kB" | "K" | "Ki" => 1024.0,
        "MiB" | "MB" | "M" | "Mi" => 1024.0 * 1024.0,
        "GiB" | "GB" | "G" | "Gi" => 1024.0 * 1024.0 * 1024.0,
        "TiB" | "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "PiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to LARGEST")]
fn to_bytes(value: f64) -> u64 {
    value.round() as u64
}

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
    let Some(rest) = rest else {
        // No number of any value.
        let mut found = text.match_indices(first).map(|(at, _)| at);
        return found.find(|at| !is_cut_number(text, *at, first)).map(|at| (at, first.len()));
    };
    text.match_indices(first).find_map(|(at, _)| {
        let number = text.get(at + first.len()..)?;
        let (digits, behind) = split_number(number).filter(|_| number.starts_with(|c: char| c.is_ascii_digit()))?;
        let next = rest.split(NUMBER).next()?;
        let (skipped, len) = find_part(behind, rest).filter(|_| behind.starts_with(next))?;
        (skipped == 0).then_some((at, first.len() + digits.len() + len))
    })
}

/// True if `part`, which is at `at` in `text`, ends inside a number.
fn is_cut_number(text: &str, at: usize, part: &str) -> bool {
    let (before, behind) = (text.get(..at).unwrap_or_default(), text.get(at + part.len()..).unwrap_or_default());
    is_digit(part.chars().next()) && is_digit(before.chars().next_back())
        || is_digit(part.chars().next_back()) && is_digit(behind.chars().next())
}

fn is_digit(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<(u64, u64)> {
        PrintedAmount::at_start(text).map(|amount| (amount.bytes, amount.error_bytes))
    }

    #[test]
    fn printed_sizes_keep_their_rounding() {
        assert_eq!(bytes("96.00 MiB. GPU 0"), Some((96 << 20, 5243)));
        assert_eq!(bytes(" 0 bytes is"), Some((0, 0)));
        assert_eq!(bytes("1024 bytes"), Some((1024, 0)));
        assert_eq!(bytes("17.71 GB, other"), Some((19_015_967_703, 5_368_709)));
        assert_eq!(bytes("7,79 GiB"), bytes("7.79 GiB"));
        assert_eq!(bytes("1900,00 MiB on"), bytes("1900.00 MiB"));
        assert_eq!(bytes("7,792 GiB"), bytes("7.792 GiB"));
        assert_eq!(bytes("1,024 MiB"), bytes("1024 MiB"));
        assert_eq!(bytes("189. MiB for"), bytes("189 MiB"));
        assert_eq!(PrintedAmount::at_end("; 7,02 GiB ").map(|amount| amount.text).as_deref(), Some("7.02 GiB"));
        let grouped = PrintedAmount::at_start_lenient("8,589,934,592 bytes").unwrap();
        assert_eq!(grouped.bytes, 8 << 30);
        assert_eq!(bytes("17179869184.00 GiB memory in use"), None, "2^64 means unknown");
        for none in ["", "GiB", "12 parsecs", "1.2.3 GiB", "more than 1EB", ". GiB", "…"] {
            assert_eq!(bytes(none), None, "{none}");
        }
    }

    #[test]
    fn units_are_powers_of_1024() {
        let units = ["bytes B", "KiB KB kB K Ki", "MiB MB M Mi", "GiB GB G Gi", "TiB TB", "PiB"];
        for (power, names) in (0..).zip(units) {
            for unit in names.split(' ') {
                assert_eq!(bytes(&format!("3 {unit}")).unwrap().0, 3 * 1024_u64.pow(power), "{unit}");
            }
        }
    }

    #[test]
    fn an_amount_is_found_before_a_phrase() {
        for (text, amount) in [
            ("of which 384.00 MiB ", Some("384.00 MiB")),
            ("é5.00 GiB", Some("5.00 GiB")),
            ("nothing here é", None),
            ("", None),
        ] {
            assert_eq!(PrintedAmount::at_end(text).map(|amount| amount.text).as_deref(), amount);
        }
    }

    #[test]
    fn patterns_match_in_order_with_numbers_and_bounds() {
        for (pattern, text, at) in [
            ("b…d", "abcd", Some(1)),
            ("d…b", "abcd", None),
            ("code {}, x", "exit code , code 137, x", Some(12)),
            ("code {}", "exit code x", None),
            ("CODE 137", "exit Code 1370, code 137", Some(16)),
            ("code 137$", "exit code 137 means", None),
            ("{}/{} ready", "a 1/2 ready", Some(2)),
            ("^Killed$", "  Killed ", Some(2)),
            ("^Killed$", "Killed by", None),
            ("^a…b$", "a x b", Some(0)),
        ] {
            assert_eq!(Pattern(pattern.to_owned()).find(text), at, "{pattern}");
        }
        assert_eq!(Pattern("^a {}bcd…ef$".to_owned()).longest_literal(), "bcd");
    }
}

//! Parses printed amounts of memory: `5.19 GiB`, `384.00 MiB`, `0 bytes`.

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
        let start = end_of_last(number, |c| !c.is_ascii_digit() && !matches!(c, '.' | ','));
        Self::at_start(text.get(start..)?.trim_start_matches(['.', ',']))
    }
}

/// Splits off the number at the start of `text`, with its points and commas.
pub(super) fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',')).unwrap_or(text.len());
    let number = text.get(..end)?.trim_end_matches(['.', ',']);
    Some((number, text.get(number.len()..)?)).filter(|_| !number.is_empty())
}

/// `number` with a decimal point at most. A comma groups digits (`8,589,934,592`), or is a decimal comma (`7,79 GiB`):
/// units of a GiB and more have no groups.
fn without_commas(number: &str, scale: f64) -> String {
    let is_group = |digits: &str| digits.len() == 3;
    let has_groups = number.split(',').skip(1).all(|part| is_group(part.split('.').next().unwrap_or(part)));
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
        let at_end = |text| PrintedAmount::at_end(text).map(|amount| amount.text);
        assert_eq!(at_end("of which 384.00 MiB ").as_deref(), Some("384.00 MiB"));
        assert_eq!(at_end("é5.00 GiB").as_deref(), Some("5.00 GiB"));
        assert_eq!(at_end("nothing here é"), None);
        assert_eq!(at_end(""), None);
    }
}

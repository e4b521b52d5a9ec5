//! Numbers as the C library reads them: blanks before and anything after are let pass.

/// Why a text is not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberError {
    /// It does not begin with one.
    None,
    /// It begins with one that the type cannot hold.
    Range,
}

fn is_blank(c: char) -> bool {
    c == ' ' || ('\t'..='\r').contains(&c)
}

/// Whether there is a minus, and the text after blanks and sign.
fn after_sign(text: &str) -> (bool, &str) {
    let text = text.trim_start_matches(is_blank);
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

fn whole(text: &str) -> Result<(bool, u64), NumberError> {
    let (negative, text) = after_sign(text);
    match digits(text) {
        "" => Err(NumberError::None),
        digits => digits.parse().map(|n| (negative, n)).map_err(|_| NumberError::Range),
    }
}

/// A 32-bit number taken as an unsigned size, so that -1 is the largest.
pub(super) fn int(text: &str) -> Result<u64, NumberError> {
    let (negative, magnitude) = whole(text)?;
    let limit = if negative { 1 << 31 } else { (1 << 31) - 1 };
    if magnitude > limit {
        return Err(NumberError::Range);
    }
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// An unsigned 64-bit number, where a minus counts down from zero.
pub(super) fn unsigned(text: &str) -> Result<u64, NumberError> {
    let (negative, magnitude) = whole(text)?;
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// A real number. One too small to be held in full precision is out of range.
pub(super) fn real(text: &str) -> Result<f64, NumberError> {
    let (negative, text) = after_sign(text);
    let lower = text.to_ascii_lowercase();
    let magnitude = if lower.starts_with("inf") {
        f64::INFINITY
    } else if lower.starts_with("nan") {
        f64::NAN
    } else if let Some(number) = lower.strip_prefix("0x").and_then(hexadecimal) {
        number
    } else {
        let (value, written, _) = decimal(&lower).ok_or(NumberError::None)?;
        let mantissa = written.split('e').next().unwrap_or_default();
        let is_zero = !mantissa.contains(|c: char| ('1'..='9').contains(&c));
        if !is_zero && !value.is_normal() {
            return Err(NumberError::Range);
        }
        value
    };
    Ok(if negative { -magnitude } else { magnitude })
}

/// A real number written out in decimal, with nothing after it.
pub(super) fn decimal_only(text: &str) -> Option<f64> {
    let (negative, text) = after_sign(text);
    match decimal(text)? {
        (number, _, "") => Some(if negative { -number } else { number }),
        _ => None,
    }
}

/// The number that `text` begins with, as it is written there, and the rest.
fn decimal(text: &str) -> Option<(f64, &str, &str)> {
    let before = digits(text).len();
    let point = text.get(before..).unwrap_or_default();
    let after = point.strip_prefix('.').map_or("", digits).len();
    if before + after == 0 {
        return None;
    }
    let mut end = before + after + usize::from(point.starts_with('.'));
    let rest = text.get(end..).unwrap_or_default();
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        let length = digits(unsigned).len();
        if length > 0 {
            end += 1 + exponent.len() - unsigned.len() + length;
        }
    }
    let (written, rest) = text.split_at_checked(end)?;
    Some((written.parse().ok()?, written, rest))
}

/// The hexadecimal number that `text` begins with, `0x` removed; `None` when there are no digits.
fn hexadecimal(text: &str) -> Option<f64> {
    let mut value = 0.0;
    let mut scale = 0;
    let mut seen_point = false;
    let mut length = 0;
    for c in text.chars() {
        match c.to_digit(16) {
            Some(digit) => {
                value = value * 16.0 + f64::from(digit);
                scale -= if seen_point { 4 } else { 0 };
                length += 1;
            }
            None if c == '.' && !seen_point => seen_point = true,
            None => break,
        }
    }
    if length == 0 {
        return None;
    }
    let rest = text.get(length + usize::from(seen_point)..).unwrap_or_default();
    if let Some(exponent) = rest.strip_prefix('p')
        && let Ok((negative, exponent)) = whole(exponent)
    {
        let exponent = i32::try_from(exponent.min(9_999)).unwrap_or(9_999);
        scale += if negative { -exponent } else { exponent };
    }
    Some(value * 2.0_f64.powi(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_read_as_in_c() {
        assert_eq!(int("25abc"), Ok(25));
        assert_eq!(int(" \t+7"), Ok(7));
        assert_eq!(int("-1"), Ok(u64::MAX));
        assert_eq!(int("-2147483648"), Ok(u64::MAX - (1 << 31) + 1));
        assert_eq!(int("2147483648"), Err(NumberError::Range));
        assert_eq!(int("+-1"), Err(NumberError::None));
        assert_eq!(int(""), Err(NumberError::None));
        assert_eq!(unsigned("-1"), Ok(u64::MAX));
        assert_eq!(unsigned("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(unsigned("18446744073709551616"), Err(NumberError::Range));
    }

    #[test]
    fn real_numbers_read_as_in_c() {
        for (text, value) in [
            (".5", 0.5),
            ("5.", 5.0),
            ("2.5e-1x", 0.25),
            ("0.5e", 0.5),
            ("0.5e+", 0.5),
            ("1e2e3", 100.0),
            ("0x1p-1", 0.5),
            ("0x.8", 0.5),
            ("0x1.8p", 1.5),
            ("0x", 0.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("0e-999", 0.0),
        ] {
            assert_eq!(real(text), Ok(value), "{text}");
        }
        assert!(real("nan(1)").is_ok_and(f64::is_nan));
        for (text, error) in [
            ("", NumberError::None),
            (".", NumberError::None),
            ("e5", NumberError::None),
            ("1e-310", NumberError::Range),
            ("1e400", NumberError::Range),
        ] {
            assert_eq!(real(text), Err(error), "{text}");
        }
        assert_eq!(decimal_only("0.5x"), None);
        assert_eq!(decimal_only("0x1"), None);
        assert_eq!(decimal_only("+.5"), Some(0.5));
    }
}

//! Numbers as the C library parses them: leading blanks and trailing text are ignored.

/// Why a text is not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberError {
    /// It does not start with a number.
    NotANumber,
    /// It starts with a number that the type cannot hold.
    OutOfRange,
}

fn is_blank(c: char) -> bool {
    c == ' ' || ('\t'..='\r').contains(&c)
}

/// Whether the number is negative, and the text after blanks and sign.
fn split_sign(text: &str) -> (bool, &str) {
    let text = text.trim_start_matches(is_blank);
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn parse_whole(text: &str) -> Result<(bool, u64), NumberError> {
    let (negative, text) = split_sign(text);
    match text.split(|c: char| !c.is_ascii_digit()).next() {
        None | Some("") => Err(NumberError::NotANumber),
        Some(digits) => digits.parse().map(|n| (negative, n)).map_err(|_| NumberError::OutOfRange),
    }
}

/// `std::stoi` cast to `size_t`: -1 becomes the largest size.
pub(super) fn parse_int(text: &str) -> Result<u64, NumberError> {
    let (negative, magnitude) = parse_whole(text)?;
    let limit = if negative { 1 << 31 } else { (1 << 31) - 1 };
    if magnitude > limit {
        return Err(NumberError::OutOfRange);
    }
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// `std::stoull`: a negative number wraps around.
pub(super) fn parse_unsigned(text: &str) -> Result<u64, NumberError> {
    let (negative, magnitude) = parse_whole(text)?;
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// `std::stod`: subnormal numbers are out of range.
pub(super) fn parse_real(text: &str) -> Result<f64, NumberError> {
    let (negative, digits) = split_sign(text);
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X")).and_then(parse_hexadecimal_prefix);
    if let Some(magnitude) = hexadecimal {
        return Ok(if negative { -magnitude } else { magnitude });
    }
    // Rust reads what C reads, but for trailing text.
    let text = text.trim_start_matches(is_blank);
    let mut prefixes = (1..=text.len()).rev().filter_map(|end| text.get(..end));
    let number = prefixes.find_map(|written| Some((written.parse::<f64>().ok()?, written)));
    let (value, written) = number.ok_or(NumberError::NotANumber)?;
    let mantissa = written.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !mantissa.contains(|c: char| ('1'..='9').contains(&c));
    // The words for infinity and for no number have no digit either.
    if is_zero || value.is_normal() { Ok(value) } else { Err(NumberError::OutOfRange) }
}

/// The hexadecimal number at the start of `text`, after `0x`. `None` if there are no digits.
fn parse_hexadecimal_prefix(text: &str) -> Option<f64> {
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
    let (_, rest) = text.split_at(length + usize::from(seen_point));
    if let Some(exponent) = rest.strip_prefix(['p', 'P'])
        && let Ok((negative, exponent)) = parse_whole(exponent)
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
    fn whole_numbers_parse_as_in_c() {
        assert_eq!(parse_int("25abc"), Ok(25));
        assert_eq!(parse_int(" \t+7"), Ok(7));
        assert_eq!(parse_int("-1"), Ok(u64::MAX));
        assert_eq!(parse_int("-2147483648"), Ok(u64::MAX - (1 << 31) + 1));
        assert_eq!(parse_int("2147483648"), Err(NumberError::OutOfRange));
        assert_eq!(parse_int("+-1"), Err(NumberError::NotANumber));
        assert_eq!(parse_int(""), Err(NumberError::NotANumber));
        assert_eq!(parse_unsigned("-1"), Ok(u64::MAX));
        assert_eq!(parse_unsigned("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_unsigned("18446744073709551616"), Err(NumberError::OutOfRange));
    }

    #[test]
    fn real_numbers_parse_as_in_c() {
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
            assert_eq!(parse_real(text), Ok(value), "{text}");
        }
        assert!(parse_real("nan(1)").is_ok_and(f64::is_nan));
        for (text, error) in [
            ("", NumberError::NotANumber),
            (".", NumberError::NotANumber),
            ("e5", NumberError::NotANumber),
            ("1e-310", NumberError::OutOfRange),
            ("1e400", NumberError::OutOfRange),
        ] {
            assert_eq!(parse_real(text), Err(error), "{text}");
        }
        assert!(parse_real("-nan").is_ok_and(f64::is_nan));
        assert_eq!(parse_real("0X1P1"), Ok(2.0));
        assert_eq!(parse_real("infinit"), Ok(f64::INFINITY));
    }
}

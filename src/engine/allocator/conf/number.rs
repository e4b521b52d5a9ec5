//! Numbers as the C library parses them: leading blanks and trailing text are ignored.

/// The text does not start with a number.
const NOT_A_NUMBER: &str = "is not a number";
/// The text starts with a number that the type cannot hold.
const OUT_OF_RANGE: &str = "is out of range";

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

fn parse_whole(text: &str) -> Result<(bool, u64), &'static str> {
    let (negative, text) = split_sign(text);
    match text.split(|c: char| !c.is_ascii_digit()).next() {
        None | Some("") => Err(NOT_A_NUMBER),
        Some(digits) => digits.parse().map(|n| (negative, n)).map_err(|_| OUT_OF_RANGE),
    }
}

/// `std::stoi` cast to `size_t`: -1 becomes the largest size.
pub(super) fn parse_int(text: &str) -> Result<u64, &'static str> {
    let (negative, magnitude) = parse_whole(text)?;
    let limit = if negative { 1 << 31 } else { (1 << 31) - 1 };
    if magnitude > limit {
        return Err(OUT_OF_RANGE);
    }
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// `std::stoull`: a negative number wraps around.
pub(super) fn parse_unsigned(text: &str) -> Result<u64, &'static str> {
    let (negative, magnitude) = parse_whole(text)?;
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// `std::stod`: subnormal numbers are out of range.
pub(super) fn parse_real(text: &str) -> Result<f64, &'static str> {
    // Rust reads what C reads, but for trailing text and hexadecimal numbers.
    let text = text.trim_start_matches(is_blank);
    let mut prefixes = (1..=text.len()).rev().filter_map(|end| text.get(..end));
    let number = prefixes.find_map(|written| Some((written.parse::<f64>().ok()?, written)));
    let (value, written) = number.ok_or(NOT_A_NUMBER)?;
    let mantissa = written.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !mantissa.contains(|c: char| ('1'..='9').contains(&c));
    // The words for infinity and for no number have no digit either.
    if is_zero || value.is_normal() { Ok(value) } else { Err(OUT_OF_RANGE) }
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
        assert_eq!(parse_int("2147483648"), Err(OUT_OF_RANGE));
        assert_eq!(parse_int("+-1"), Err(NOT_A_NUMBER));
        assert_eq!(parse_int(""), Err(NOT_A_NUMBER));
        assert_eq!(parse_unsigned("-1"), Ok(u64::MAX));
        assert_eq!(parse_unsigned("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_unsigned("18446744073709551616"), Err(OUT_OF_RANGE));
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
            ("0x", 0.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("0e-999", 0.0),
        ] {
            assert_eq!(parse_real(text), Ok(value), "{text}");
        }
        assert!(parse_real("nan(1)").is_ok_and(f64::is_nan));
        for (text, error) in [
            ("", NOT_A_NUMBER),
            (".", NOT_A_NUMBER),
            ("e5", NOT_A_NUMBER),
            ("1e-310", OUT_OF_RANGE),
            ("1e400", OUT_OF_RANGE),
        ] {
            assert_eq!(parse_real(text), Err(error), "{text}");
        }
        assert!(parse_real("-nan").is_ok_and(f64::is_nan));
        assert_eq!(parse_real("infinit"), Ok(f64::INFINITY));
    }
}

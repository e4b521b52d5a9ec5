//! Text arguments of protocol 0.

use super::error::ErrorKind;
use crate::base::units::is_active;

/// The bytes up to the next newline; advances `pos` past it.
pub(super) fn take_line<'a>(bytes: &'a [u8], pos: &mut usize) -> Result<&'a [u8], ErrorKind> {
    let rest = bytes.get(*pos..).ok_or(ErrorKind::Truncated)?;
    let end = rest.iter().position(|&b| b == b'\n').ok_or(ErrorKind::Truncated)?;
    *pos += end + 1;
    rest.get(..end).ok_or(ErrorKind::Truncated)
}

/// The start of `raw` for a message, as by [`printable`].
pub(super) fn excerpt(raw: &[u8]) -> String {
    printable(&String::from_utf8_lossy(raw.get(..4 * MAX_SHOWN_CHARS).unwrap_or(raw)))
}

/// A message quotes at most this many characters of a file.
const MAX_SHOWN_CHARS: usize = 80;

/// `text` for a message: its first 80 characters, with control characters and the like escaped.
pub fn printable(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::new();
    for c in chars.by_ref().take(MAX_SHOWN_CHARS) {
        if is_active(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if chars.next().is_some() {
        out.push_str("...");
    }
    out
}

/// A decimal number, `inf` or `nan`.
pub(super) fn parse<T: std::str::FromStr>(digits: &[u8]) -> Result<T, ErrorKind> {
    let text = std::str::from_utf8(digits).ok().and_then(|text| text.trim().parse().ok());
    text.ok_or_else(|| ErrorKind::BadNumber(excerpt(digits)))
}

/// CPython rejects longer textual integers (`sys.get_int_max_str_digits`).
const MAX_DIGITS: usize = 4300;

/// A decimal integer as little-endian two's complement.
#[expect(clippy::cast_possible_truncation, reason = "the low half of a 64-bit product, or a carry")]
pub(super) fn parse_integer(digits: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    if let Ok(narrow) = parse::<i64>(digits) {
        return Ok(narrow.to_le_bytes().to_vec());
    }
    let trimmed = digits.trim_ascii();
    let (negative, magnitude) = match trimmed {
        [b'-', magnitude @ ..] => (true, magnitude),
        magnitude => (false, magnitude.strip_prefix(b"+").unwrap_or(magnitude)),
    };
    if magnitude.is_empty() || magnitude.len() > MAX_DIGITS || !magnitude.iter().all(u8::is_ascii_digit) {
        return Err(ErrorKind::BadNumber(excerpt(digits)));
    }
    let mut limbs: Vec<u32> = Vec::new();
    for group in magnitude.chunks(9) {
        let (scale, mut carry) =
            group.iter().fold((1, 0), |(scale, value), digit| (scale * 10, value * 10 + u64::from(digit - b'0')));
        for limb in &mut limbs {
            let product = u64::from(*limb) * scale + carry;
            (*limb, carry) = (product as u32, product >> 32);
        }
        if carry > 0 {
            limbs.push(carry as u32);
        }
    }
    limbs.push(0); // the sign
    if negative {
        let mut carry = true;
        for limb in &mut limbs {
            (*limb, carry) = (!*limb).overflowing_add(u32::from(carry));
        }
    }
    Ok(limbs.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// The bytes of a quoted Python 2 string literal.
pub(super) fn unescape_string(quoted: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    unescape_quoted(quoted).ok_or_else(|| ErrorKind::BadString(excerpt(quoted)))
}

fn unescape_quoted(quoted: &[u8]) -> Option<Vec<u8>> {
    let ([b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"']) = quoted else { return None };
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        match bytes.next()? {
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'x' => {
                let hex = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
            }
            other => out.push(other),
        }
    }
    Some(out)
}

/// Raw-unicode-escape: Latin-1, with `\uXXXX` and `\UXXXXXXXX`.
pub(super) fn unescape_unicode(raw: &[u8]) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        let width = match (first, tail.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => 0,
        };
        let hex = tail.get(1..=width).filter(|_| width > 0);
        let code = hex.and_then(|hex| u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        if let Some(code) = code {
            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = tail.get(1 + width..).unwrap_or_default(); // in range: `code` was read from there
        } else {
            out.push(char::from(*first));
            rest = tail;
        }
    }
    out
}

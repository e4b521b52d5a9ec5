//! The arguments that the oldest protocol writes as lines of text.

use super::error::ErrorKind;

/// The bytes up to the next newline; `pos` moves past it.
pub(super) fn line<'a>(bytes: &'a [u8], pos: &mut usize) -> Result<&'a [u8], ErrorKind> {
    let rest = bytes.get(*pos..).ok_or(ErrorKind::Truncated)?;
    let end = rest.iter().position(|&b| b == b'\n').ok_or(ErrorKind::Truncated)?;
    *pos += end + 1;
    rest.get(..end).ok_or(ErrorKind::Truncated)
}

fn parse<T: std::str::FromStr>(digits: &[u8]) -> Result<T, ErrorKind> {
    let text = String::from_utf8_lossy(digits);
    text.trim().parse().map_err(|_| ErrorKind::BadNumber(text.chars().take(40).collect()))
}

/// A decimal integer of at most 128 bits as little-endian two's complement.
pub(super) fn integer(digits: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    let value: i128 = parse(digits)?;
    Ok(match i64::try_from(value) {
        Ok(narrow) => narrow.to_le_bytes().to_vec(),
        Err(_) => value.to_le_bytes().to_vec(),
    })
}

/// A decimal float; Python's `inf` and `nan` included.
pub(super) fn float(digits: &[u8]) -> Result<f64, ErrorKind> {
    parse(digits)
}

/// A decimal memo number.
pub(super) fn index(digits: &[u8]) -> Result<u64, ErrorKind> {
    parse(digits)
}

/// The bytes of a quoted Python 2 string literal.
pub(super) fn unescape_string(quoted: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    let bad = || ErrorKind::BadNumber(String::from_utf8_lossy(quoted).chars().take(40).collect());
    let ([b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"']) = quoted else {
        return Err(bad());
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        match bytes.next().ok_or_else(bad)? {
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'x' => {
                let hex = [bytes.next().ok_or_else(bad)?, bytes.next().ok_or_else(bad)?];
                let hex = std::str::from_utf8(&hex).map_err(|_| bad())?;
                out.push(u8::from_str_radix(hex, 16).map_err(|_| bad())?);
            }
            other => out.push(other),
        }
    }
    Ok(out)
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
        let code = tail
            .get(1..=width)
            .filter(|_| width > 0)
            .and_then(|hex| u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        if let Some(code) = code {
            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = tail.get(1 + width..).unwrap_or_default();
        } else {
            out.push(char::from(*first));
            rest = tail;
        }
    }
    out
}

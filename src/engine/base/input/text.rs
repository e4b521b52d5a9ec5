//! Converts text in UTF-16, or in UTF-8 with a byte order mark, as programs on Windows write it.

use std::io::{self, Read};

/// As many bytes at the start of a file show whether it is a log.
const LOG_START_BYTES: usize = 4096;

/// Whether `bytes` start like a log: text for people, and neither JSON nor a pickle of protocol 0, which is text too.
pub fn looks_like_log(bytes: &[u8]) -> bool {
    let start = bytes.get(..LOG_START_BYTES).unwrap_or(bytes);
    // Logs have colours, progress bars, and letters in UTF-8.
    let is_text = start.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n' | 0x08 | 0x1b | 0x80..));
    let text = start.trim_ascii_start();
    let is_json = match text {
        // Python prints a dict so, and it is no JSON: `{'loss': 2.1}`.
        [b'{', rest @ ..] => matches!(rest.trim_ascii_start(), [b'"' | b'}', ..]),
        [b'[', rest @ ..] => match rest.trim_ascii_start() {
            [b'{' | b'[' | b']' | b'"', ..] => true,
            // A list of numbers, but not a time stamp or rank in brackets.
            numbers => {
                numbers.iter().take_while(|byte| **byte != b']').all(|byte| b"0123456789.,-+eE \n".contains(byte))
            }
        },
        _ => false,
    };
    let is_pickle = start.starts_with(b"(dp") || start.starts_with(b"(lp");
    is_text && text.contains(&b' ') && !is_json && !is_pickle
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// An encoding that needs conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8WithBom,
    Utf16Le,
    Utf16Be,
}

impl Encoding {
    /// The encoding of text that begins with `start`; `None` for plain UTF-8 and for binary data.
    pub(super) fn detect(start: &[u8]) -> Option<Self> {
        match *start {
            [0xef, 0xbb, 0xbf, ..] => Some(Self::Utf8WithBom),
            [0xff, 0xfe, ..] => Some(Self::Utf16Le),
            [0xfe, 0xff, ..] => Some(Self::Utf16Be),
            [a, 0, b, 0, ..] if is_ascii_text([a, b]) => Some(Self::Utf16Le),
            [0, a, 0, b, ..] if is_ascii_text([a, b]) => Some(Self::Utf16Be),
            _ => None,
        }
    }
}

fn is_ascii_text(bytes: [u8; 2]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Reads text as UTF-8 without a byte order mark. Invalid UTF-16 becomes U+FFFD.
pub(super) struct Utf8Reader<R> {
    source: R,
    encoding: Encoding,
    has_started: bool,
    /// The first bytes of a character that the source has not completed.
    partial: Vec<u8>,
    /// Converted text that was not read yet.
    decoded: io::Cursor<Vec<u8>>,
}

impl<R: Read> Utf8Reader<R> {
    pub(super) fn new(source: R, encoding: Encoding) -> Self {
        Self { source, encoding, has_started: false, partial: Vec::new(), decoded: io::Cursor::default() }
    }

    /// Converts more of the source; `false` at its end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = std::mem::take(&mut self.partial);
        let read = self.source.by_ref().take(1 << 16).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut text = match self.encoding {
            Encoding::Utf8WithBom => bytes,
            Encoding::Utf16Le | Encoding::Utf16Be => self.decode_utf16(bytes, read == 0).into_bytes(),
        };
        if !std::mem::replace(&mut self.has_started, true) {
            let mark = BYTE_ORDER_MARK.to_string();
            if text.starts_with(mark.as_bytes()) {
                text.drain(..mark.len());
            }
        }
        self.decoded = io::Cursor::new(text);
        Ok(true)
    }

    fn decode_utf16(&mut self, mut bytes: Vec<u8>, is_end: bool) -> String {
        if !is_end {
            let even_len = bytes.len() / 2 * 2;
            let last = bytes.get(even_len.saturating_sub(2)..even_len).map(|pair| self.utf16_unit(pair));
            let split_at =
                if last.is_some_and(|unit| (0xd800..0xdc00).contains(&unit)) { even_len - 2 } else { even_len };
            self.partial = bytes.split_off(split_at);
        }
        let units = bytes.chunks(2).map(|pair| self.utf16_unit(pair));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    fn utf16_unit(&self, pair: &[u8]) -> u16 {
        match (self.encoding, pair) {
            (Encoding::Utf16Be, &[high, low]) => u16::from_be_bytes([high, low]),
            (_, &[low, high]) => u16::from_le_bytes([low, high]),
            (_, odd) => odd.first().map_or(0, |byte| u16::from(*byte)),
        }
    }
}

impl<R: Read> Read for Utf8Reader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.decoded.read(out)?;
            if read > 0 || out.is_empty() || !self.fill()? {
                return Ok(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> String {
        let mut text = String::new();
        let encoding = Encoding::detect(bytes).unwrap();
        Utf8Reader::new(bytes, encoding).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn logs_are_known_by_their_start() {
        for log in [
            "Traceback (most recent call last):",
            "(EngineCore pid=3) x",
            "[rank0]: é 1",
            "[2026-01-01 10:00:00] x",
            "{'loss': 2.1} {'loss': 2.0}",
            "\u{1b}[31m5 %\r",
        ] {
            assert!(looks_like_log(log.as_bytes()), "{log}");
        }
        for other in ["{\"a\": 1}", " [ {\"a\": 1}]", "[]", "[1, 2, 3]", "(dp0\nS'a b'", "", "\u{80}\u{2}} q", "word"] {
            let bytes = if other == "\u{80}\u{2}} q" { b"\x80\x02} q\0" } else { other.as_bytes() };
            assert!(!looks_like_log(bytes), "{other}");
        }
    }

    #[test]
    fn every_encoding_is_read_wherever_a_chunk_ends() {
        for text in ["a", "CUDA out of memory", &"x😀".repeat(70_000), &"😀".repeat(50_000)] {
            let marked = format!("\u{feff}{text}");
            let little: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let big: Vec<u8> = marked.encode_utf16().flat_map(u16::to_be_bytes).collect();
            assert!([little, big, marked.into_bytes()].iter().all(|bytes| read(bytes) == *text));
        }
        assert_eq!(read(b"a\0b\0"), "ab");
        assert_eq!(read(b"\0a\0b"), "ab");
        assert_eq!(read(b"\xff\xfea\0\x00\xd8"), "a\u{fffd}");
        for other in [&b""[..], b"a", b"{\"a\"", b"\x80\x04", b"\0\0\0\0", b"}q\0(", b"a\0\0\0"] {
            assert_eq!(Encoding::detect(other), None, "{other:?}");
        }
    }
}

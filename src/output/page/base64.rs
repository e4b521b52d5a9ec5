//! Base64, written in chunks.

use std::io::{self, Write};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Bytes encoded at once: a multiple of three.
const CHUNK: usize = 3 * 1024;

/// Writes `bytes` to `out` as base64.
pub(super) fn write(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::with_capacity(CHUNK / 3 * 4);
    for chunk in bytes.chunks(CHUNK) {
        text.clear();
        for three in chunk.chunks(3) {
            // The last group is padded with zero bits.
            let bits = (0..3).fold(0, |bits, index| bits << 8 | u32::from(three.get(index).copied().unwrap_or(0)));
            for place in 0..4_usize {
                let letter = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
                text.push(if place > three.len() { b'=' } else { letter });
            }
        }
        out.write_all(&text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_written_as_in_rfc_4648() {
        for (bytes, wanted) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut text = Vec::new();
            super::write(bytes.as_bytes(), &mut text).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), wanted);
        }
    }
}

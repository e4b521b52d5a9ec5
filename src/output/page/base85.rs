//! Base85, for large binary data in a page: five characters for four bytes, where base64 takes five and a third. The
//! characters are none that HTML gives a meaning.

use std::io::{self, Write};

const ALPHABET: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{}";
/// Bytes encoded at once: a multiple of four.
const CHUNK: usize = 4 * 1024;

/// Writes `bytes` to `out`: big-endian groups of four bytes as five digits; a last group of N bytes has N + 1.
pub(super) fn write(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::with_capacity(CHUNK / 4 * 5);
    for chunk in bytes.chunks(CHUNK) {
        text.clear();
        for group in chunk.chunks(4) {
            let mut padded = [0; 4];
            padded[..group.len()].copy_from_slice(group);
            let value = u32::from_be_bytes(padded);
            let digits = [85u32.pow(4), 85u32.pow(3), 85u32.pow(2), 85, 1].map(|scale| value / scale % 85);
            text.extend(digits.iter().take(group.len() + 1).map(|digit| ALPHABET[*digit as usize]));
        }
        out.write_all(&text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn four_bytes_become_five_characters() {
        let encode = |bytes: &[u8]| {
            let mut text = Vec::new();
            super::write(bytes, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(encode(b""), "");
        assert_eq!(encode(&[0, 0, 0, 0]), "00000");
        assert_eq!(encode(&[0, 0, 0, 84, 0]), "0000}00");
        // 4,294,967,295 = (((82 * 85 + 23) * 85 + 54) * 85 + 12) * 85 + 0
        assert_eq!(encode(&[255; 4]), "_NsC0");
        assert_eq!(encode(&[7; 9]).len(), 12);
    }
}

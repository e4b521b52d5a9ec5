//! Extracts the pickle from the page that torch's `_memory_viz.py` writes, which contains it as base64.

/// The first bytes of such a page, in any case; and the key before the pickle.
const PAGE_STARTS: [&[u8]; 2] = [b"<!doctype html", b"<html"];
const PICKLE_KEY: &[u8] = b"\"base64\":";

/// The first pickle in the page `bytes`; `None` if it is no such page.
pub(super) fn embedded_pickle(bytes: &[u8]) -> Option<Vec<u8>> {
    let page = bytes.trim_ascii_start();
    if !PAGE_STARTS.iter().any(|start| page.get(..start.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(start))) {
        return None;
    }
    let key = memchr::memmem::find(page, PICKLE_KEY)?;
    let rest = page.get(key + PICKLE_KEY.len()..)?.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', rest)?;
    decode_base64(rest.get(..end)?)
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.trim_ascii_end();
    let digits = digits.strip_suffix(b"==").or_else(|| digits.strip_suffix(b"=")).unwrap_or(digits);
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 3);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for (index, digit) in group.iter().enumerate() {
            bits |= u32::from(digit_value(*digit)?) << (18 - 6 * index);
        }
        let [_, bytes @ ..] = bits.to_be_bytes();
        out.extend(bytes.iter().take(group.len() * 3 / 4));
    }
    Some(out)
}

fn digit_value(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(inside: &str) -> String {
        format!(
            "\n<!DOCTYPE html>\n<script>const local_files = \
             [{{\"name\": \"snapshot.pickle\", \"base64\": \"{inside}\"}}]</script>"
        )
    }

    #[test]
    fn the_pickle_of_a_page_is_extracted() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")] {
            assert_eq!(embedded_pickle(page(text).as_bytes()).unwrap(), bytes.as_bytes());
        }
        assert_eq!(embedded_pickle(page("Zm9v").trim_start().replace('/', "").as_bytes()).unwrap(), b"foo");
        for other in ["Zm9v", "<html></html>", "<html>\"base64\": \"Z!\"", "<html>\"base64\": \"Zm9v"] {
            assert_eq!(embedded_pickle(other.as_bytes()), None, "{other}");
        }
    }
}

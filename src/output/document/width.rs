//! The width of text on a terminal.

use anstream::adapter::strip_str;
use unicode_width::UnicodeWidthStr;

/// Terminal columns of `text`; escape sequences have no width.
pub(super) fn display_width(text: &str) -> usize {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.len();
    }
    strip_str(text).map(UnicodeWidthStr::width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_have_no_width() {
        assert_eq!(display_width("日本 \u{1b}[1mü"), 6);
    }
}

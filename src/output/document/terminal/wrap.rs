//! Line wrapping by display width.

use crate::output::document::width::display_width;

/// Breaks `text` at spaces into lines of at most `max_width` columns, joined by a newline and `indent`.
pub(super) fn wrap(text: &str, max_width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let len = display_width(word);
        if column > 0 && column + 1 + len > max_width {
            out.push('\n');
            out.push_str(indent);
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrap("aaaaaaaa b", 5, ""), "aaaaaaaa\nb");
        assert_eq!(wrap("", 5, ""), "");
        assert_eq!(wrap("\u{1b}[1maa bb cc\u{1b}[0m", 5, ""), "\u{1b}[1maa bb\ncc\u{1b}[0m");
    }
}

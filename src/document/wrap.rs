//! Lines of a bounded width.

use anstream::adapter::strip_str;
use unicode_width::UnicodeWidthStr;

/// Columns that `text` takes; escape sequences take none.
pub(super) fn width(text: &str) -> usize {
    strip_str(text).map(UnicodeWidthStr::width).sum()
}

/// Breaks `text` at blanks so that no line is wider than `room`, and joins the lines with `indent`.
pub(super) fn wrap(text: &str, room: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let len = width(word);
        if column > 0 && column + 1 + len > room {
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

/// A place such as `/a/b/train.py:12 in step` in at most `room` columns, or in those that its function's name
/// needs: the end of the path tells most.
pub(super) fn shorten(place: &str, room: usize, dots: &str) -> String {
    const LEAST: usize = 16;
    if width(place) <= room {
        return place.to_owned();
    }
    let (path, name) = place.split_at(place.rfind(" in ").unwrap_or(place.len()));
    let room = room.saturating_sub(width(name)).max(LEAST);
    if width(path) <= room {
        return place.to_owned();
    }
    let keep = room.saturating_sub(width(dots));
    let mut end = path;
    while width(end) > keep {
        let mut rest = end.chars();
        rest.next();
        end = rest.as_str();
    }
    // Rather a whole directory name than the end of one.
    let end = end.find('/').and_then(|slash| end.get(slash..)).unwrap_or(end);
    format!("{dots}{end}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrap("aaaaaaaa b", 5, ""), "aaaaaaaa\nb");
        assert_eq!(wrap("", 5, ""), "");
        assert_eq!(wrap("\u{1b}[1maa bb cc\u{1b}[0m", 5, ""), "\u{1b}[1maa bb\ncc\u{1b}[0m");
        assert_eq!(width("日本 \u{1b}[1mü"), 6);
    }

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(shorten("/a/b/train.py", 20, "..."), "/a/b/train.py");
        assert_eq!(shorten("/very/long/way/to/train.py", 17, "..."), ".../to/train.py");
        let long = "/very/long/way/to/train.py:12 in step";
        assert_eq!(
            shorten(long, 30, "…"),
            "…/long/way/to/train.py:12 in step".replace("/long/way", "/way")
        );
        assert_eq!(shorten(&"x".repeat(40), 20, "…"), format!("…{}", "x".repeat(19)));
    }
}

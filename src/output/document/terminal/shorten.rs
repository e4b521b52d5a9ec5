//! Cuts text to the width of a line.

use super::style::Style;
use crate::output::document::text::{Span, Text, display_width};

/// Path separators of Linux and Windows.
const SEPARATORS: [char; 2] = ['/', '\\'];
/// Paths keep this much before anything else is cut.
const MIN_PATH_COLUMNS: usize = 16;

/// `text` in `room` columns, as plain text: paths lose their start, a setting or a name its middle, other text its end.
pub(super) fn fit(text: &Text, room: usize, style: Style) -> String {
    fit_spans(text, room, style).spans.iter().map(|span| style.escaped(&span.text)).collect()
}

/// The same, with the emphasis.
pub(super) fn fit_spans(text: &Text, room: usize, style: Style) -> Text {
    let dots = style.pick("…", "...");
    let mut text = text.clone();
    for index in 0..text.spans.len() {
        let beside = style.columns(&text) - display_width(&style.escaped(&text.spans[index].text));
        text.spans[index].shorten_path(room.saturating_sub(beside), dots);
    }
    if style.columns(&text) <= room {
        return text;
    }
    // A place behind other text is kept.
    let has_place = text.spans.len() > 2 && text.spans.last().is_some_and(|span| span.path_len > 0);
    let tail_len = if has_place { 2 } else { 0 };
    let tail = Text { spans: text.spans.split_off(text.spans.len() - tail_len) };
    let (tail_width, dots_width) = (style.columns(&tail), display_width(dots));
    if room < tail_width + MIN_PATH_COLUMNS {
        text.spans.extend(tail.spans);
        return cut_end(text, room, dots);
    }
    let room = room - tail_width;
    let text = match &*text.spans {
        // The ends of settings and names differ as often as their starts.
        [span] if span.is_code && span.path_len == 0 => {
            let kept = room.saturating_sub(dots_width);
            let end = last_columns(&span.text, kept / 3);
            let start = first_columns(&span.text, kept - display_width(end));
            Text { spans: vec![Span { text: format!("{start}{dots}{end}"), ..span.clone() }] }
        }
        _ => cut_end(text, room, dots),
    };
    text.and(tail)
}

/// `text` without its end, in `room` columns.
fn cut_end(mut text: Text, room: usize, dots: &str) -> Text {
    let mut left = room.saturating_sub(display_width(dots));
    for span in &mut text.spans {
        let kept = first_columns(&span.text, left).len();
        left -= display_width(&span.text[..kept]).min(left);
        if kept < span.text.len() {
            span.text.truncate(kept);
            span.text.push_str(if left == 0 || kept > 0 { dots } else { "" });
            left = 0;
        }
    }
    // One ellipsis is enough.
    if let Some(last) = text.spans.iter().position(|span| span.text.ends_with(dots)) {
        text.spans.truncate(last + 1);
    }
    text
}

impl Span {
    /// Cuts the start of the path, so that the span has `room` columns, as far as `MIN_PATH_COLUMNS` remain.
    fn shorten_path(&mut self, room: usize, dots: &str) {
        let (path, rest) = self.text.split_at(self.path_len);
        let room = room.saturating_sub(display_width(rest)).max(MIN_PATH_COLUMNS);
        if path.is_empty() || display_width(path) <= room {
            return;
        }
        let end = last_columns(path, room.saturating_sub(display_width(dots)));
        // Start at a separator: complete directory names only.
        let end = end.find(SEPARATORS).and_then(|at| end.get(at..)).unwrap_or(end);
        let path = format!("{dots}{end}");
        self.path_len = path.len();
        self.text = path + rest;
    }
}

/// The longest prefix of `text` that fits into `room` columns.
pub(crate) fn first_columns(text: &str, room: usize) -> &str {
    let mut taken = 0;
    let kept = text.char_indices().take_while(|(at, character)| {
        taken += display_width(&text[*at..at + character.len_utf8()]);
        taken <= room
    });
    kept.last().map_or("", |(at, character)| &text[..at + character.len_utf8()])
}

/// The longest suffix of `text` that fits into `room` columns. Reads no more than that: a path may be megabytes long.
pub(crate) fn last_columns(text: &str, room: usize) -> &str {
    let mut taken = 0;
    let characters = text.char_indices().rev().map(|(at, c)| (at, &text[at..at + c.len_utf8()]));
    let kept = characters.take_while(|(_, character)| {
        taken += display_width(character);
        taken <= room
    });
    kept.last().map_or("", |(at, _)| &text[at..])
}

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
    use crate::output::document::text::source_location;

    fn cut(path: &str, rest: &str, room: usize) -> String {
        let style = Style { width: 80, unicode: true, colour: false };
        fit(&source_location(path, rest), room, style)
    }

    #[test]
    fn paths_lose_their_start_and_text_its_end() {
        assert_eq!(cut("/a/b/train.py", "", 20), "/a/b/train.py");
        assert_eq!(cut("/very/long/way/to/train.py", "", 17), "…/way/to/train.py");
        assert_eq!(cut(r"C:\very\long\way\to\train.py", "", 17), r"…\way\to\train.py");
        assert_eq!(cut(&"/endless".repeat(1 << 20), "", 17), "…/endless/endless");
        assert_eq!(cut("/very/long/way/to/train.py", ":12 step", 30), "…/long/way/to/train.py:12 step");
        assert_eq!(cut("/a/b.py", ":1 a_function_of_a_long_name", 14), "/a/b.py:1 a_f…");
        assert_eq!(cut("", "日本日本日本", 8), "日本日…");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrap("aaaaaaaa b", 5, ""), "aaaaaaaa\nb");
        assert_eq!(wrap("", 5, ""), "");
        assert_eq!(wrap("\u{1b}[1maa bb cc\u{1b}[0m", 5, ""), "\u{1b}[1maa bb\ncc\u{1b}[0m");
    }
}

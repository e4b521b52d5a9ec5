//! How wide, in which characters, and with which emphasis.

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style as Ansi};

/// What the reader's screen can show.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// Whether block and line characters can be shown, else plain ASCII.
    pub unicode: bool,
    /// Whether escape sequences are understood.
    pub colour: bool,
}

impl Style {
    fn paint(self, style: Ansi, text: &str) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// A heading.
    pub(super) fn heading(self, text: &str) -> String {
        self.paint(Ansi::new().bold(), text)
    }

    /// What went wrong.
    pub(super) fn alarm(self, text: &str) -> String {
        self.paint(AnsiColor::Red.on_default().bold(), text)
    }

    /// What the eye should find first.
    pub(super) fn strong(self, text: &str) -> String {
        self.paint(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// What can be passed over.
    pub(super) fn faint(self, text: &str) -> String {
        self.paint(Ansi::new().dimmed(), text)
    }

    /// `unicode` where it can be shown, else `ascii`.
    pub(super) fn pick<T>(self, unicode: T, ascii: T) -> T {
        if self.unicode { unicode } else { ascii }
    }
}

/// Breaks `text` at blanks so that no line is longer than `width`, and joins the lines with `indent`. Escape
/// sequences take no room.
pub(super) fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let len: usize = strip_str(word).map(|shown| shown.chars().count()).sum();
        if column > 0 && column + 1 + len > width {
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

/// `path` in at most `width` columns: the end of it, which tells most.
pub(super) fn tail(path: &str, width: usize, style: Style) -> String {
    let len = path.chars().count();
    if len <= width {
        return path.to_owned();
    }
    let dots = style.pick("…", "...");
    let keep = width.saturating_sub(dots.chars().count());
    let end: String = path.chars().skip(len - keep).collect();
    // Rather a whole directory name than the end of one.
    let end = end.find('/').map_or(end.as_str(), |slash| end.get(slash..).unwrap_or(&end));
    format!("{dots}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrap("aaaaaaaa b", 5, ""), "aaaaaaaa\nb");
        assert_eq!(wrap("", 5, ""), "");
        let style = Style { width: 5, unicode: false, colour: true };
        assert_eq!(wrap(&style.alarm("aa bb cc"), 5, ""), style.alarm("aa bb\ncc"));
    }

    #[test]
    fn long_paths_keep_their_end() {
        let style = Style { width: 80, unicode: false, colour: false };
        assert_eq!(tail("/a/b/train.py", 20, style), "/a/b/train.py");
        assert_eq!(tail("/very/long/way/to/train.py", 17, style), ".../to/train.py");
    }
}

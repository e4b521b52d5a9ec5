//! Text into cells. All text of the screen goes through [`put`], which escapes what a terminal would obey.

use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use crate::base::units::escape_text;
use crate::output::document::terminal::shorten::{first_columns, last_columns};

pub(super) const PLAIN: Style = Style::new();
pub(super) const FAINT: Style = Style::new().fg(Color::DarkGray);
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Writes `text` in at most `room` columns, its end cut. Returns the column after it.
pub(super) fn put(buffer: &mut Buffer, x: u16, y: u16, room: u16, text: &str, style: Style) -> u16 {
    let area = buffer.area;
    let room = room.min(area.width.saturating_sub(x));
    if room == 0 || y >= area.height {
        return x;
    }
    let shown = fit(&escape_text(text), room.into());
    buffer.set_stringn(x, y, &shown, room.into(), style).0
}

/// Writes `text` at the end of the line, from column `left` on; without its start if it is too long.
pub(super) fn put_right(buffer: &mut Buffer, left: u16, y: u16, text: &str, style: Style) {
    let text = escape_text(text);
    let room = buffer.area.width.saturating_sub(left);
    let shown = last_columns(&text, room.into());
    let x = buffer.area.width - columns(shown);
    put(buffer, x, y, room, shown, style);
}

/// The columns of `text`.
pub(super) fn columns(text: &str) -> u16 {
    u16::try_from(text.width()).unwrap_or(u16::MAX)
}

/// `text` in `room` columns: its start, and an ellipsis for the rest.
pub(super) fn fit(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    format!("{}…", first_columns(text, room.saturating_sub(1)))
}

/// A name in `room` columns: its start and its end, as both tell names apart.
pub(super) fn without_middle(name: &str, room: usize) -> String {
    let name = escape_text(name);
    if name.width() <= room {
        return name;
    }
    let rest = last_columns(&name, room / 2);
    format!("{}{rest}", fit(&name, room - rest.width()))
}

/// The name of a source line, `app/train.py:3 in step`, with the file alone.
pub(super) fn without_directories(name: &str) -> &str {
    let path = name.split(' ').next().unwrap_or_default();
    &name[path.rfind(['/', '\\']).map_or(0, |end| end + 1)..]
}

/// The lines of `text` in `room` columns, broken between words where there are some.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    let text = escape_text(text);
    if text.width() <= room {
        return vec![text];
    }
    let indent = text.len() - text.trim_start().len();
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split_whitespace() {
        let word = without_middle(word, room.saturating_sub(indent + 2));
        let last = lines.len() - 1;
        let is_first = lines[last].trim().is_empty();
        if !is_first && lines[last].width() + 1 + word.width() > room {
            lines.push(format!("{}{word}", " ".repeat(indent + 2)));
        } else {
            if !is_first {
                lines[last].push(' ');
            }
            lines[last].push_str(&word);
        }
    }
    lines
}

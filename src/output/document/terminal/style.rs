//! Width, character set and colours of a terminal page.

use anstyle::{AnsiColor, Style as Ansi};

use crate::base::units::escape_text;
use crate::output::document::text::{Text, Tone, display_width};
use crate::output::document::text_chart::{Glyphs, UNICODE};

const ASCII: Glyphs = Glyphs {
    front: '#',
    back: '.',
    axis: '|',
    mark: '^',
    axis_line: ['+', '-', '+'],
    levels: ['.', ':', '-', '=', '+', '*', '%', '#'],
};

/// Characters of our own sentences, for terminals without Unicode.
const OWN_CHARACTERS: [(char, &str); 4] = [('→', "->"), ('←', "<-"), ('·', "|"), ('−', "-")];

/// Capabilities of the terminal.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// In columns.
    pub width: usize,
    /// Whether to use block and line characters rather than ASCII.
    pub unicode: bool,
    /// Whether to write escape sequences.
    pub colour: bool,
}

impl Style {
    /// `unicode` if the terminal can show it, else `ascii`.
    pub(crate) fn pick<T>(self, unicode: T, ascii: T) -> T {
        if self.unicode { unicode } else { ascii }
    }

    pub(super) fn pens(self) -> Glyphs {
        self.pick(UNICODE, ASCII)
    }

    /// Escapes what a terminal would act on. All text goes through this function.
    pub(super) fn escaped(self, text: &str) -> String {
        let plain = escape_text(text);
        if self.unicode {
            return plain;
        }
        OWN_CHARACTERS.iter().fold(plain, |text, (own, ascii)| text.replace(*own, ascii))
    }

    /// The columns that `text` takes.
    pub(super) fn columns(self, text: &Text) -> usize {
        text.spans.iter().map(|span| display_width(&self.escaped(&span.text))).sum()
    }

    pub(super) fn render(self, text: &Text) -> String {
        self.paint(text, Ansi::new())
    }

    pub(super) fn render_heading(self, text: &Text) -> String {
        self.paint(text, Ansi::new().bold())
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.painted(text, Ansi::new().bold())
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.painted(text, Ansi::new().dimmed())
    }

    /// `text`, which is escaped already, in `ansi`.
    pub(super) fn painted(self, text: &str, ansi: Ansi) -> String {
        if self.colour && !text.is_empty() { format!("{ansi}{text}{ansi:#}") } else { text.to_owned() }
    }

    fn paint(self, text: &Text, plain: Ansi) -> String {
        let painted = text.spans.iter().map(|span| {
            let style = match span.tone {
                Tone::Plain => plain,
                Tone::Strong => plain.bold(),
                Tone::Alarm => AnsiColor::Red.on_default().bold(),
                Tone::Faint => Ansi::new().dimmed(),
            };
            self.painted(&self.escaped(&span.text), style)
        });
        painted.collect()
    }
}

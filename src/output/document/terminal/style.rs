//! How wide, in which characters, and with which emphasis.

use anstyle::{AnsiColor, Style as Ansi};

use crate::base::units::escape_text;
use crate::output::document::pens::{Glyphs, UNICODE};
use crate::output::document::text::{Text, Tone};

const ASCII: Glyphs = Glyphs {
    front: '#',
    back: '.',
    axis: '|',
    mark: '^',
    range: '=',
    ground: ['+', '-', '+'],
    levels: ['_', '.', '-', '=', '+', '*', '%', '@'],
    paint: None,
};

/// Colours of layers, which lie on each other: neighbours are unlike.
const LAYERS: [AnsiColor; 5] =
    [AnsiColor::Blue, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Cyan, AnsiColor::Yellow];

fn painted(layer: usize, cells: &str) -> String {
    let colour = LAYERS.get(layer).or(LAYERS.last()).copied().unwrap_or(AnsiColor::White);
    let style = colour.on_default();
    format!("{style}{cells}{style:#}")
}

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
    /// `unicode` where it can be shown, else `ascii`.
    pub(crate) fn pick<T>(self, unicode: T, ascii: T) -> T {
        if self.unicode { unicode } else { ascii }
    }

    pub(super) fn pens(self) -> Glyphs {
        let pens = self.pick(UNICODE, ASCII);
        Glyphs { paint: self.colour.then_some(painted), ..pens }
    }

    /// What stands for a part that is left out.
    pub(super) fn dots(self) -> &'static str {
        self.pick("…", "...")
    }

    /// `text` without anything that a terminal would act on. Every text that is shown passes here.
    pub(super) fn raw(self, text: &str) -> String {
        let plain = escape_text(text);
        if self.unicode { plain } else { plain.replace('→', "->") }
    }

    /// `text` with its emphasis.
    pub(super) fn show(self, text: &Text) -> String {
        self.painted(text, Ansi::new())
    }

    /// The same as a heading.
    pub(super) fn show_heading(self, text: &Text) -> String {
        self.painted(text, Ansi::new().bold())
    }

    fn painted(self, text: &Text, plain: Ansi) -> String {
        let paint = |(text, tone): (String, Tone)| {
            let style = match tone {
                Tone::Plain => plain,
                Tone::Strong => AnsiColor::Yellow.on_default().bold(),
                Tone::Alarm => AnsiColor::Red.on_default().bold(),
                Tone::Faint => Ansi::new().dimmed(),
            };
            if self.colour { format!("{style}{text}{style:#}") } else { text }
        };
        text.spans.iter().map(|span| paint((self.raw(&span.text), span.tone))).collect()
    }
}

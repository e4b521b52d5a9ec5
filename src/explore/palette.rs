//! The colours of groups, as far as a terminal has them: true colour, 256 or 16 colours, or letters. The table of colours is
//! in the script of the HTML page.

use std::sync::LazyLock;

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::Color;

use crate::study::attribution::Category;

/// Colours of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// None: letters tell groups apart.
    None,
    /// The 16 ANSI colours.
    Ansi,
    /// 256 colours.
    Indexed,
    /// 24 bits.
    True,
}

/// Capabilities of a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Its colours.
    pub colours: Colours,
    /// Whether it shows Unicode.
    pub unicode: bool,
}

/// Index of the colour of a category or a line.
pub(super) type Slot = usize;

/// The colour of memory that belongs to no group, such as all other lines.
pub(super) const OTHER: Slot = Category::ALL.len() - 1;

/// The ANSI colour and the letter of each slot: the categories, then the lines.
const ANSI: [u8; 28] = [12, 11, 5, 6, 4, 13, 3, 9, 8, 4, 11, 2, 5, 9, 6, 3, 13, 1, 14, 12, 10, 6, 11, 13, 14, 3, 9, 12];
const LETTERS: &[u8; 28] = b"PGOAKCITXabcdefghijklmnopqrs";

/// Blocks that fill one eighth to eight eighths of a cell from below.
pub(super) const EIGHTHS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Characters, and for terminals without Unicode one in place of each.
const UNICODE: &str = "✗▲▼─┄│•░▒·…→←↑↓";
const ASCII: &str = "x^v--|o:%.~><^v";

const SCRIPT: &str = include_str!("../output/page/web/groups.js");

/// The colour of each slot: the categories, in the order of [`Category::ALL`], then lines and variables in turn.
static TABLE: LazyLock<Vec<[u8; 3]>> = LazyLock::new(|| {
    let categories = block("CATEGORY_COLOURS");
    let category_colours = Category::ALL.iter().map(|category| {
        let row = categories.lines().find(|row| row.trim_start().trim_matches('"').starts_with(category.word()));
        row.and_then(|row| colours(row).next()).unwrap_or_default()
    });
    category_colours.chain(colours(block("LINE_COLOURS"))).collect()
});

/// The constant `name` of the script.
fn block(name: &str) -> &'static str {
    let start = SCRIPT.find(&format!("const {name} = ")).unwrap_or(SCRIPT.len());
    SCRIPT[start..].split(';').next().unwrap_or_default()
}

fn colours(text: &str) -> impl Iterator<Item = [u8; 3]> {
    text.split('#').skip(1).filter_map(|rest| {
        let [_, red, green, blue] = u32::from_str_radix(rest.get(..6)?, 16).ok()?.to_be_bytes();
        Some([red, green, blue])
    })
}

/// The slot of line `index`.
pub(super) fn line_slot(index: usize) -> Slot {
    Category::ALL.len() + index % (TABLE.len() - Category::ALL.len())
}

/// The colour of `slot`; that of a guess is darker.
pub(super) fn colour(slot: Slot, is_guess: bool) -> Color {
    let [red, green, blue] = TABLE[slot].map(|part| if is_guess { part / 5 * 3 } else { part });
    Color::Rgb(red, green, blue)
}

/// The slot of `colour`, and whether it is that of a guess.
fn slot_of(shown: Color) -> Option<(Slot, bool)> {
    let slots = (0..TABLE.len()).flat_map(|slot| [(slot, false), (slot, true)]);
    slots.into_iter().find(|(slot, is_guess)| colour(*slot, *is_guess) == shown)
}

/// Replaces what the terminal cannot show.
pub(super) fn adapt(buffer: &mut Buffer, look: Look) {
    for cell in &mut buffer.content {
        if let Some(eighths) = EIGHTHS.iter().position(|block| *block == cell.symbol()) {
            adapt_block(cell, eighths + 1, look);
        } else if !look.unicode && !cell.symbol().is_ascii() {
            let ascii = UNICODE.chars().zip(ASCII.chars()).find(|(unicode, _)| cell.symbol() == unicode.to_string());
            cell.set_char(ascii.map_or('?', |(_, ascii)| ascii));
        }
        cell.fg = shown(cell.fg, look.colours);
        cell.bg = shown(cell.bg, look.colours);
    }
}

/// A cell of which `eighths` have the foreground colour, the others that of the background.
fn adapt_block(cell: &mut Cell, eighths: usize, look: Look) {
    if look.unicode && look.colours != Colours::None {
        return;
    }
    let most = if eighths >= 4 { cell.fg } else { cell.bg };
    match slot_of(most) {
        None => {
            cell.set_symbol(if most == Color::Reset { " " } else { "#" });
        }
        Some((slot, is_guess)) if look.colours == Colours::None => {
            let letter = char::from(LETTERS[slot]);
            cell.set_char(if is_guess { letter.to_ascii_lowercase() } else { letter });
        }
        Some(_) => {
            cell.set_symbol(" ");
            cell.bg = most;
        }
    }
}

fn shown(colour: Color, colours: Colours) -> Color {
    let Color::Rgb(red, green, blue) = colour else {
        return if colours == Colours::None { Color::Reset } else { colour };
    };
    match colours {
        Colours::None => Color::Reset,
        Colours::True => colour,
        Colours::Ansi => slot_of(colour).map_or(Color::Reset, |(slot, _)| Color::Indexed(ANSI[slot])),
        Colours::Indexed => {
            // The cube of 6 x 6 x 6 colours.
            let [red, green, blue] = [red, green, blue].map(|part| (u16::from(part) * 5 + 127) / 255);
            let index = 16 + 36 * red + 6 * green + blue;
            Color::Indexed(u8::try_from(index).unwrap_or(u8::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_a_colour_of_its_own() {
        let mut colours = TABLE[..Category::ALL.len()].to_vec();
        assert_eq!(colours[0], [0x54, 0xbc, 0xfe]);
        assert!(!colours.contains(&[0; 3]));
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), Category::ALL.len());
        assert_eq!(TABLE.len(), Category::ALL.len() + 20);
    }
}

//! Tables, their columns as wide as what stands in them and the page allows.

use super::style::Style;
use crate::document::table::{Cell, Table};
use crate::document::text::Text;
use crate::document::wrap::{shorten, width, wrap};

/// A column of words is made no narrower for lack of room.
const LEAST: usize = 16;
/// Columns on both sides of a table.
const MARGINS: usize = 3;
/// Columns of the longest bar, and of a page that has no room for bars.
const BAR: usize = 20;
const BARLESS: usize = 70;

/// `table`, each line with its newline.
pub(super) fn table(table: &Table, style: Style) -> String {
    let room = style.width.saturating_sub(MARGINS);
    let laid_out = TableLayout::new(table, style);
    if let Some(least) = table.least.filter(|_| laid_out.total() > room) {
        return self::table(&table.clone().without(least), style);
    }
    let layout = laid_out.within(room);
    let mut out = String::new();
    let mut line = |text: &str, indent: &str| {
        let line = format!("{indent}{text}");
        out.push_str(line.trim_end());
        out.push('\n');
    };
    if let Some(caption) = &table.caption {
        line(&wrap(&style.show(caption), style.width, ""), "");
    }
    let header: Vec<Vec<String>> =
        table.header.iter().map(|name| vec![(*name).to_owned()]).collect();
    for text in layout.lines(&header) {
        line(&text, "  ");
    }
    line(&style.pick("─", "-").repeat(layout.total() + 1), "  ");
    for row in &table.rows {
        let cells: Vec<Vec<String>> = row
            .iter()
            .zip(&layout.widths)
            .map(|(cell, width)| fitted(cell, *width, style))
            .collect();
        for text in layout.lines(&cells) {
            line(&text, "  ");
        }
    }
    if let Some(note) = &table.note {
        line(&wrap(&style.show(note), room, "  "), "  ");
    }
    out
}

/// The columns of a table.
struct TableLayout<'a> {
    table: &'a Table,
    widths: Vec<usize>,
}

impl<'a> TableLayout<'a> {
    /// Each as wide as the widest of what stands in it.
    fn new(table: &'a Table, style: Style) -> Self {
        let of = |(column, name): (usize, &&str)| {
            let cells = table.rows.iter().filter_map(|row| row.get(column));
            let lines = cells.flat_map(|cell| fitted(cell, usize::MAX, style));
            lines.map(|line| width(&line)).fold(width(name), usize::max)
        };
        let widths = table.header.iter().enumerate().map(of).collect();
        Self { table, widths }
    }

    fn total(&self) -> usize {
        self.widths.iter().sum::<usize>() + 2 * self.widths.len().saturating_sub(1)
    }

    /// The same in `room` columns, as far as words can be broken: what is widest gives way first.
    fn within(mut self, room: usize) -> Self {
        while let Some(excess @ 1..) = self.total().checked_sub(room) {
            let words = self.table.words.iter().filter_map(|column| self.widths.get(*column));
            let mut widths: Vec<usize> = words.copied().filter(|width| *width > LEAST).collect();
            widths.sort_unstable();
            let Some(widest) = widths.pop() else { break };
            let next = widths.pop().filter(|next| *next < widest).unwrap_or(LEAST);
            let narrower = widest - excess.min(widest - next);
            let is_widest = |column: &&usize| self.widths.get(**column) == Some(&widest);
            let Some(column) = self.table.words.iter().rfind(is_widest) else { break };
            if let Some(width) = self.widths.get_mut(*column) {
                *width = narrower;
            }
        }
        self
    }

    /// The lines of a row of cells.
    fn lines(&self, cells: &[Vec<String>]) -> Vec<String> {
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |index: usize| {
            let cells = cells.iter().zip(&self.widths).enumerate().map(|(column, (cell, room))| {
                let text = cell.get(index).map_or("", String::as_str);
                let blanks = " ".repeat(room.saturating_sub(width(text)));
                let is_words = self.table.words.contains(&column);
                if is_words { format!("{text}{blanks}") } else { format!("{blanks}{text}") }
            });
            cells.collect::<Vec<_>>().join("  ")
        };
        (0..height).map(line).collect()
    }
}

/// The lines of a cell that is `room` columns wide.
fn fitted(cell: &Cell, room: usize, style: Style) -> Vec<String> {
    match cell {
        Cell::Text(text) => fit(text, room, style),
        Cell::Part(depth, text) => {
            let indent = " ".repeat(2 * usize::from(*depth));
            indented(&indent, &fit(text, room.saturating_sub(indent.len()), style))
        }
        Cell::Over(text, below) => {
            let below = below
                .iter()
                .flat_map(|text| indented("  ", &fit(text, room.saturating_sub(2), style)));
            fit(text, room, style).into_iter().chain(below).collect()
        }
        Cell::Bar(share) => {
            let room = style.width.saturating_sub(BARLESS).min(BAR);
            vec![style.pick("█", "#").repeat(columns(*share, room))]
        }
    }
}

fn indented(indent: &str, lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| format!("{indent}{line}")).collect()
}

fn fit(text: &Text, room: usize, style: Style) -> Vec<String> {
    let mut text = text.clone();
    if let Some((place, before)) =
        text.spans.split_last_mut().filter(|(last, _)| last.is_code && last.text.contains('/'))
    {
        let beside: usize = before.iter().map(|span| width(&style.raw(&span.text))).sum();
        place.text = shorten(&style.raw(&place.text), room.saturating_sub(beside), style.dots());
    }
    wrap(&style.show(&text), room, "").lines().map(str::to_owned).collect()
}

/// `share` of `room` columns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to `room`")]
fn columns(share: f64, room: usize) -> usize {
    (share.clamp(0.0, 1.0) * room as f64).round() as usize
}

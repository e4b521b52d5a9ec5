//! The table of holders.

use ratatui_core::buffer::Buffer;
use ratatui_core::style::Style;

use super::layout::{Layout, View};
use super::palette::{EIGHTHS, colour};
use super::recording::Recording;
use super::state::State;
use super::text::{PLAIN, SELECTED, STRONG, columns, put, without_middle};
use crate::base::units::{count, percent, ratio, signed_size, size};
use crate::output::category_label;

/// The narrowest first cell of a row that has others.
const MIN_NAME: u16 = 12;
/// A wider table would part a name from its figures.
const MAX_TABLE: u16 = 130;

/// Draws the cells of a row, the first at the left and the others, each with its width, at the right as far as there is
/// room for them.
fn put_row(buffer: &mut Buffer, y: u16, first: (u16, &str), others: &[(u16, &str)], style: Style) {
    let all = buffer.area.width.min(MAX_TABLE);
    let width = |count: usize| others[..count].iter().map(|(width, _)| width + 1).sum::<u16>();
    let has_room = |count: &usize| width(*count) + first.0 + MIN_NAME <= all;
    let others = &others[..(0..=others.len()).rev().find(has_room).unwrap_or(0)];
    let right = width(others.len());
    let room = all.saturating_sub(right + first.0);
    put(buffer, first.0, y, room, &without_middle(first.1, room.into()), style);
    let mut x = all.saturating_sub(right);
    for (width, text) in others {
        x += 1;
        put(buffer, x + width.saturating_sub(columns(text)), y, *width, text, style);
        x += width;
    }
}

pub(super) fn draw_holders(state: &State<'_, '_>, recording: &Recording, buffer: &mut Buffer, layout: &Layout) {
    let rows = state.holders();
    let selected = state.selected[View::Holders as usize].unwrap_or(0).min(rows.len().saturating_sub(1));
    let grouping = &recording.groupings[state.groupings[1]];
    let total = recording.allocated[state.moment as usize];
    let order = if state.marked.is_some() { "change" } else { "bytes" };
    let head = format!("held by {}, {order} first (g)", grouping.word);
    let header = [(10, "change"), (9, "bytes"), (6, "share"), (8, "blocks"), (16, "")];
    let shown = usize::from(state.marked.is_none())..;
    put_row(buffer, layout.body.y, (2, &head), &header[shown.clone()], STRONG);
    let first = layout.first_row(selected);
    for (index, (row, y)) in rows.iter().skip(first).zip(layout.rows.y..layout.rows.y + layout.rows.height).enumerate()
    {
        let change = if row.change == 0 { String::new() } else { signed_size(row.change) };
        let cells = [size(row.bytes), percent(ratio(row.bytes, total)), count(row.blocks)];
        let style = if first + index == selected { SELECTED } else { PLAIN };
        let category = row.category.map_or_else(String::new, category_label);
        let cells = [(10, &*change), (9, &*cells[0]), (6, &*cells[1]), (8, &*cells[2]), (16, &*category)];
        put_row(buffer, y, (2, &row.name), &cells[shown.clone()], style);
        put(buffer, 0, y, 1, EIGHTHS[7], Style::new().fg(colour(row.slot, row.is_guess)));
    }
}

//! The tables: holders and ranks.

use std::cmp::Reverse;

use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Style};

use super::layout::{Layout, View};
use super::palette::{EIGHTHS, Look, adapt, colour};
use super::recording::Recording;
use super::state::{ORDERS, State};
use super::text::{ALARM, FAINT, PLAIN, SELECTED, STRONG, columns, put, without_middle};
use crate::allocator::verdict::Verdict;
use crate::analysis::{RankRow, Ranks};
use crate::base::units::{count, percent, ratio, signed_size, size};
use crate::output::category_label;
use crate::output::report::row_names;

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
    let search = if state.found.is_some() { ", matches of the search" } else { "" };
    let order = if state.marked.is_some() && state.order == 0 { "change" } else { ORDERS[state.order] };
    let head = format!("held by {}{search}, {order} first (g, t)", grouping.word);
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

/// Orders `rows` by the result, the request, reserved or allocated memory: column `by`, counted round.
pub fn sort_ranks(rows: &mut [RankRow], by: usize) {
    match by % 4 {
        0 => rows.sort_by_key(|row| (Reverse(row.has_failed()), row.conclusion.map(Verdict::word))),
        1 => rows.sort_by_key(|row| Reverse(row.requested_bytes)),
        2 => rows.sort_by_key(|row| Reverse(row.peak_reserved_bytes)),
        _ => rows.sort_by_key(|row| Reverse(row.peak_allocated_bytes)),
    }
}

/// Draws the table of ranks, the worst first, into the empty `buffer`.
pub fn draw_ranks(ranks: &Ranks, selected: usize, message: Option<&str>, buffer: &mut Buffer, look: Look) {
    let names = row_names(&ranks.rows);
    let area = buffer.area;
    put(buffer, 0, 0, area.width, &ranks.summary, STRONG);
    let header = [(14, "result"), (28, "at"), (11, "requested"), (11, "reserved"), (9, "of device"), (11, "allocated")];
    put_row(buffer, 1, (2, "rank, worst first"), &header, STRONG);
    let height = usize::from(area.height.saturating_sub(3));
    let first = (selected + 1).saturating_sub(height);
    let rows = ranks.rows.iter().zip(&names).enumerate().skip(first).take(height);
    for ((index, (row, name)), y) in rows.zip(2..) {
        let has_failed = row.has_failed();
        let result = row.conclusion.map_or(if has_failed { "failed" } else { "no failure" }, Verdict::word);
        let capacity = row.capacity_bytes.or(row.reach_bytes);
        let share = capacity.map_or_else(String::new, |bytes| percent(ratio(row.peak_reserved_bytes, bytes)));
        let (allocated, reserved) = (size(row.peak_allocated_bytes), size(row.peak_reserved_bytes));
        let style = if index == selected { SELECTED } else { PLAIN };
        let line = without_middle(row.failed_line.as_deref().unwrap_or_default(), 28);
        let requested = row.requested_bytes.map_or_else(String::new, size);
        let cells = [(14, result), (28, &*line), (11, &requested), (11, &reserved), (9, &share), (11, &allocated)];
        put_row(buffer, y, (2, name), &cells, style);
        let (sign, tone) = if has_failed { ("✗", ALARM) } else { ("✓", Style::new().fg(Color::Green)) };
        put(buffer, 0, y, 1, sign, tone);
    }
    let foot = message.unwrap_or("Enter opens a rank  ↑ ↓ j k select  t sort  q leave");
    put(buffer, 0, area.height.saturating_sub(1), area.width, foot, if message.is_some() { STRONG } else { FAINT });
    adapt(buffer, look);
}

//! The screen of one device as a function of its state.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::draw_map::draw_map;
use super::draw_memory::draw_memory;
use super::handle::FOOT;
use super::layout::{Layout, View};
use super::palette::{EIGHTHS, Look, adapt, colour};
use super::recording::Recording;
use super::state::{Popup, State};
use super::text::{ALARM, FAINT, PLAIN, SELECTED, STRONG, columns, put, put_right, without_middle, wrap};
use crate::base::units::{count, duration, percent, ratio, signed_difference, signed_size, size};
use crate::output::wording::category_label;

/// The smallest screen that shows anything.
const MIN_SIZE: [u16; 2] = [40, 10];

/// Draws `state` into the empty `buffer`.
pub fn draw(state: &State<'_, '_>, buffer: &mut Buffer, look: Look) {
    draw_state(state, buffer);
    adapt(buffer, look);
}

fn draw_state(state: &State<'_, '_>, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < MIN_SIZE[0] || area.height < MIN_SIZE[1] {
        put(buffer, 0, 0, area.width, "too small: 40 x 10 or more", PLAIN);
        return;
    }
    let layout = state.layout(area);
    draw_head(state, buffer, &layout);
    match (state.view, state.recording.as_ref()) {
        (_, None) => {
            put(buffer, 0, layout.body.y + 1, area.width, "reading the allocations…", FAINT);
        }
        (View::Memory, Some(recording)) => draw_memory(state, recording, buffer, &layout),
        (View::Map, Some(recording)) => draw_map(state, recording, buffer, &layout),
        (View::Holders, Some(recording)) => draw_holders(state, recording, buffer, &layout),
    }
    draw_foot(state, buffer, layout.foot);
    if let Some(popup) = &state.popup {
        draw_popup(popup, buffer, layout.body);
    }
}

/// Tabs, the file, and the answer of the analysis.
fn draw_head(state: &State<'_, '_>, buffer: &mut Buffer, layout: &Layout) {
    for view in View::ALL {
        let style = if view == state.view { SELECTED } else { PLAIN };
        put(buffer, Layout::tab_column(view), 0, buffer.area.width, view.tab(), style);
    }
    let last = View::ALL[View::ALL.len() - 1];
    let taken = Layout::tab_column(last) + columns(last.tab()) + 2;
    put_right(buffer, taken, 0, &format!("{}  GPU {}", state.path, state.device.id()), FAINT);
    let style = match state.result() {
        Some(_) if state.device.failed_requests().next().is_some() => ALARM,
        Some(_) => STRONG,
        None => FAINT,
    };
    for (y, line) in (1..layout.body.y).zip(state.answer_lines(buffer.area)) {
        put(buffer, 0, y, buffer.area.width, &line, style);
    }
}

/// A line being typed, a message, or the moment and keys.
fn draw_foot(state: &State<'_, '_>, buffer: &mut Buffer, y: u16) {
    let width = buffer.area.width;
    if let Some(prompt) = &state.prompt {
        // Typing shows the end of a long line.
        let text = format!("go to: {prompt}_");
        let hidden = usize::from(columns(&text).saturating_sub(width));
        put(buffer, 0, y, width, &text.chars().skip(hidden).collect::<String>(), STRONG);
        return;
    }
    if let Some(message) = &state.message {
        put(buffer, 0, y, width, message, STRONG);
        return;
    }
    let mut x = put(buffer, 0, y, width - columns(FOOT[0]) - 2, &describe_moment(state), STRONG);
    for key in FOOT {
        if x + 2 + columns(key) <= width {
            x += 2;
            x = put(buffer, x, y, width - x, key, FAINT);
        }
    }
}

/// `12,345/53,079 step 24 forward 1.2 s 5.19 GiB, +1.2 GiB since entry 12,000`
fn describe_moment(state: &State<'_, '_>) -> String {
    let device = state.device;
    let entry = state.moment.checked_sub(1);
    let mut parts = vec![match entry {
        Some(entry) => format!("{}/{}", count(entry.into()), count(state.last().into())),
        None if state.last() == 0 => "the snapshot".to_owned(),
        None => "before the first entry".to_owned(),
    }];
    if let Some(entry) = entry.map(|entry| entry as usize) {
        let step = device.phases().steps.step_at(entry).map(|step| format!("step {step}"));
        parts.extend(step.into_iter().chain([device.phases().phase_at(entry).word().to_owned()]));
        let since = device.device().time_us(entry).zip(device.device().time_us(0));
        parts.extend(since.map(|(now, start)| duration(now.saturating_sub(start))));
    }
    if let Some(recording) = &state.recording {
        let now = recording.allocated[state.moment as usize];
        parts.push(size(now));
        if let Some(marked) = state.marked {
            let change = signed_difference(recording.allocated[marked as usize], now);
            parts.push(format!("{} since {}", signed_size(change), count(u64::from(marked.saturating_sub(1)))));
        }
    }
    parts.join(" ")
}

fn draw_popup(popup: &Popup, buffer: &mut Buffer, body: Rect) {
    let room = usize::from(body.width.saturating_sub(4));
    let lines: Vec<String> = popup.lines.iter().flat_map(|line| wrap(line, room)).collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(body.height);
    for y in 0..height {
        let (text, style) = match y {
            0 => (popup.title.as_str(), SELECTED),
            _ => (lines.get(popup.scroll + usize::from(y) - 1).map_or("", String::as_str), PLAIN),
        };
        put(buffer, body.x, body.y + y, body.width, &" ".repeat(body.width.into()), style);
        put(buffer, body.x + 2, body.y + y, body.width.saturating_sub(4), text, style);
    }
}

/// The narrowest first cell of a row that has others.
const MIN_NAME: u16 = 12;
/// A wider table would part a name from its figures.
const MAX_TABLE: u16 = 130;

/// Draws the cells of a row, the first at the left and the others, each with its width, at the right as far as there is
/// room for them.
fn put_row(buffer: &mut Buffer, y: u16, first: (u16, &str), others: &[(u16, &str)], style: Style) {
    let all = buffer.area.width.min(MAX_TABLE);
    let mut others = others;
    let mut right = others.iter().map(|(width, _)| width + 1).sum::<u16>();
    while let Some(((width, _), narrower)) = others.split_last().filter(|_| right + first.0 + MIN_NAME > all) {
        (others, right) = (narrower, right - width - 1);
    }
    let room = all.saturating_sub(right + first.0);
    put(buffer, first.0, y, room, &without_middle(first.1, room.into()), style);
    let mut x = all.saturating_sub(right);
    for (width, text) in others {
        x += 1;
        put(buffer, x + width.saturating_sub(columns(text)), y, *width, text, style);
        x += width;
    }
}

fn draw_holders(state: &State<'_, '_>, recording: &Recording, buffer: &mut Buffer, layout: &Layout) {
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

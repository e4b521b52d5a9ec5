//! The screen of one device as a function of its state.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::draw_holders::draw_holders;
use super::draw_map::draw_map;
use super::draw_memory::draw_memory;
use super::keys::FOOT;
use super::layout::{Layout, View};
use super::palette::{Look, adapt};
use super::state::{Popup, State};
use super::text::{ALARM, FAINT, PLAIN, SELECTED, STRONG, columns, put, put_right, wrap};
use crate::base::units::{count, duration, signed_difference, signed_size, size};

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
    let name = format!("{}  GPU {}", state.path, state.device.id());
    put_right(buffer, taken, 0, &name, FAINT);
    let style = match state.result() {
        Some(_) if state.device.failed_requests().next().is_some() => ALARM,
        Some(_) => STRONG,
        None => FAINT,
    };
    let width = buffer.area.width;
    let lines = (1..layout.body.y).zip(state.answer_lines(buffer.area));
    for (y, line) in lines {
        put(buffer, 0, y, width, &line, style);
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
            let from = u64::from(marked.saturating_sub(1));
            parts.push(format!("{} since {}", signed_size(change), count(from)));
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
        let blank = " ".repeat(body.width.into());
        put(buffer, body.x, body.y + y, body.width, &blank, style);
        put(buffer, body.x + 2, body.y + y, body.width.saturating_sub(4), text, style);
    }
}

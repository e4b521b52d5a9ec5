//! Memory over time: groups stacked, the reserved memory above them, steps and phases below.

use std::cmp::Reverse;
use std::fmt::Display;
use std::ops::Range;

use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier, Style};

use super::layout::Layout;
use super::palette::{EIGHTHS, colour};
use super::recording::{Column, Group, Moment, Recording};
use super::side::draw_side;
use super::state::State;
use super::text::{ALARM, FAINT, PLAIN, STRONG, columns, put, without_directories};
use crate::base::units::{ratio, size};
use crate::output::document::Band;
use crate::output::document::bands::draw_bands;

pub(super) fn draw_memory(state: &State<'_, '_>, recording: &Recording, buffer: &mut Buffer, layout: &Layout) {
    if state.last() == 0 {
        let text = "no history was recorded, so there is no memory over time: 2 shows the map";
        put(buffer, 0, layout.body.y + 1, layout.body.width, text, PLAIN);
        return;
    }
    if layout.chart.width == 0 || layout.chart.height == 0 {
        return;
    }
    let Some(grouping) = state.grouping() else { return };
    let (groups, shown) = (&*grouping.groups, recording.columns(grouping, &state.zoom, layout.chart.width.into()));
    let used = shown.iter().map(|column| column.reserved.max(column.groups.iter().sum())).fold(1, u64::max);
    // A device that is much larger would leave no room for the rest.
    let capacity = state.result().and_then(|result| result.capacity);
    let capacity = capacity.filter(|bytes| ratio(*bytes, used) <= MAX_CAPACITY_RATIO);
    let top = used.max(capacity.unwrap_or(0));
    for (x, column) in (layout.chart.x..).zip(&shown) {
        draw_column(buffer, layout, x, column, groups, top);
    }
    draw_axis(buffer, layout, top);
    if let Some(y) = capacity.and_then(|bytes| line_of(layout, bytes, top)) {
        for x in layout.chart.x..layout.chart.x + layout.chart.width {
            if buffer[(x, y)].symbol() == " " {
                buffer[(x, y)].set_symbol("┄").set_style(STRONG);
            }
        }
    }
    draw_cursor(state, buffer, layout);
    if layout.has_bands {
        draw_ranges(state, buffer, layout);
    }
    let mut layout = *layout;
    if state.has_side(buffer.area) {
        let drawn = draw_side(state, buffer, layout.legend);
        (layout.legend.y, layout.legend.height) = (layout.legend.y + drawn, layout.legend.height - drawn);
    }
    draw_legend(groups, &recording.sums_at(grouping, state.moment), buffer, &layout);
}

/// A larger device, as a multiple of the memory in the picture, has no line in it.
const MAX_CAPACITY_RATIO: f64 = 1.5;

/// The height of `bytes` in eighths of a line.
fn eighths(layout: &Layout, bytes: u64, top: u64) -> u64 {
    let all = u128::from(layout.chart.height) * 8;
    u64::try_from((u128::from(bytes) * all).div_ceil(u128::from(top))).unwrap_or(u64::MAX)
}

/// The line of the picture at the height of `bytes`.
fn line_of(layout: &Layout, bytes: u64, top: u64) -> Option<u16> {
    let above = u16::try_from(eighths(layout, bytes, top).checked_sub(1)? / 8).ok()?;
    (above < layout.chart.height).then(|| layout.chart.y + layout.chart.height - 1 - above)
}

fn draw_column(buffer: &mut Buffer, layout: &Layout, x: u16, column: &Column, groups: &[Group], top: u64) {
    let (mut sum, mut edges) = (0_u64, Vec::new());
    for (bytes, group) in column.groups.iter().zip(groups) {
        sum = sum.saturating_add(*bytes);
        edges.push((eighths(layout, sum, top), colour(group.slot, group.is_guess)));
    }
    if let Some(y) = line_of(layout, column.reserved, top) {
        buffer[(x, y)].set_symbol("─").set_style(FAINT);
    }
    for above in 0..layout.chart.height {
        let (low, high) = (u64::from(above) * 8, u64::from(above) * 8 + 8);
        let Some(first) = edges.iter().position(|(edge, _)| *edge > low) else { break };
        let filled = edges[first].0.min(high) - low;
        // Above it, the group that has most of the rest, unless most of that is free.
        let rest = edges.windows(2).skip(first).max_by_key(|pair| pair[1].0.min(high) - pair[0].0.min(high));
        let covered = edges[edges.len() - 1].0.min(high) - low;
        let rest = rest.filter(|_| (covered - filled) * 2 > 8 - filled);
        let cell = &mut buffer[(x, layout.chart.y + layout.chart.height - 1 - above)];
        cell.set_symbol(EIGHTHS[usize::try_from(filled).unwrap_or(8) - 1]);
        cell.set_style(Style::new().fg(edges[first].1).bg(rest.map_or(Color::Reset, |pair| pair[1].1)));
    }
}

fn draw_axis(buffer: &mut Buffer, layout: &Layout, top: u64) {
    let (chart, bottom) = (layout.chart, layout.chart.y + layout.chart.height - 1);
    for (y, bytes) in [(chart.y, top), (chart.y + chart.height / 2, top / 2), (bottom, 0)] {
        let label = if bytes == 0 { "0".to_owned() } else { size(bytes) };
        put(buffer, (chart.x - 1).saturating_sub(columns(&label)), y, chart.x, &label, FAINT);
    }
}

/// The line above the picture: failures, the peak, the marked moment and the cursor, which goes down to the memory.
fn draw_cursor(state: &State<'_, '_>, buffer: &mut Buffer, layout: &Layout) {
    let y = layout.chart.y - 1;
    let peak = state.device.history().and_then(|history| history.peak.allocated_event);
    let peak = peak.and_then(|entry| u32::try_from(entry + 1).ok());
    let failures = state.device.failed_requests().filter_map(|entry| u32::try_from(entry + 1).ok());
    let signs = peak.map(|moment| (moment, "▲", STRONG)).into_iter();
    let signs = signs.chain(failures.map(|moment| (moment, "✗", ALARM)));
    for (moment, symbol, style) in signs.chain(state.marked.map(|moment| (moment, "A", STRONG))) {
        if let Some(x) = layout.column_of(moment, &state.zoom) {
            buffer[(x, y)].set_symbol(symbol).set_style(style);
        }
    }
    let Some(x) = layout.column_of(state.moment, &state.zoom) else { return };
    if buffer[(x, y)].symbol() == " " {
        buffer[(x, y)].set_symbol("▼");
    } else {
        buffer[(x, y)].set_style(Style::new().add_modifier(Modifier::REVERSED));
    }
    // Memory keeps its colours: a block that is reversed looks free.
    let mut line = layout.chart.y;
    while line < layout.chart.y + layout.chart.height && !EIGHTHS.contains(&buffer[(x, line)].symbol()) {
        buffer[(x, line)].set_symbol("│").set_style(STRONG);
        line += 1;
    }
}

/// The steps and the phases of the moments in the picture.
fn draw_ranges(state: &State<'_, '_>, buffer: &mut Buffer, layout: &Layout) {
    let phases = state.device.phases();
    let zoom = &state.zoom;
    let runs = phases.ranges(zoom.end as usize).filter_map(|(phase, entries)| band_in(zoom, phase, entries));
    let steps = phases.steps.ranges().filter_map(|(step, entries)| band_in(zoom, step, entries));
    let (phase_bands, step_bands): (Vec<Band>, Vec<Band>) = (runs.collect(), steps.collect());
    let bottom = layout.chart.y + layout.chart.height;
    for (y, name, bands, is_numbered) in [(bottom, "phase", phase_bands, false), (bottom + 1, "step", step_bands, true)]
    {
        let columns = usize::from(layout.chart.width);
        if !bands.is_empty()
            && let Some(line) = draw_bands(&bands, is_numbered, zoom.len() as u64, columns, '│')
        {
            put(buffer, 0, y, layout.chart.x, name, FAINT);
            put(buffer, layout.chart.x, y, layout.chart.width, &line, FAINT);
        }
    }
}

/// The part of `entries` within `zoom`.
fn band_in(zoom: &Range<Moment>, name: impl Display, entries: Range<usize>) -> Option<Band> {
    let (first, last) = (u64::from(zoom.start), u64::from(zoom.end));
    // Entry `e` leads to moment `e + 1`.
    let range = [entries.start, entries.end].map(|entry| (entry as u64 + 1).clamp(first, last) - first);
    (range[0] < range[1]).then(|| Band { range, name: name.to_string() })
}

/// The groups with their bytes at the moment, the one on top first.
fn draw_legend(groups: &[Group], sums: &[u64], buffer: &mut Buffer, layout: &Layout) {
    let area = layout.legend;
    let is_beside = area.x > 0;
    let (mut x, mut y) = (area.x, area.y);
    let width = if is_beside { area.width } else { area.width / 3 };
    let mut listed: Vec<usize> = (0..groups.len()).filter(|index| sums[*index] > 0).collect();
    // The largest that have room; beside the picture in its order.
    listed.sort_by_key(|index| Reverse(sums[*index]));
    if is_beside {
        listed.truncate(usize::from(area.height.saturating_sub(2)));
        listed.sort_unstable_by_key(|index| Reverse(*index));
    }
    let listed = listed.into_iter().map(|index| {
        let group = &groups[index];
        let text = format!("{} {}", size(sums[index]), without_directories(&group.name));
        (EIGHTHS[7], text, Style::new().fg(colour(group.slot, group.is_guess)))
    });
    for (symbol, text, style) in listed.chain([("─", "reserved".to_owned(), FAINT)]) {
        if y >= area.y + area.height {
            return;
        }
        put(buffer, x, y, 1, symbol, style);
        put(buffer, x + 2, y, width.saturating_sub(3), &text, PLAIN);
        if is_beside || x + 2 * width > area.x + area.width {
            (x, y) = (area.x, y + 1);
        } else {
            x += width;
        }
    }
}

//! The map of device memory at the moment.

use std::cmp::Reverse;

use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Modifier, Style};

use super::layout::{Layout, View};
use super::map_cells::MapCells;
use super::palette::{EIGHTHS, colour};
use super::recording::Recording;
use super::rows::describe_block;
use super::state::State;
use super::text::{ALARM, FAINT, PLAIN, columns, put};
use crate::base::units::{counted, size};

pub(super) fn draw_map(state: &State<'_, '_>, recording: &Recording, buffer: &mut Buffer, layout: &Layout) {
    let (request, body) = (state.failed_request(), layout.body);
    let map = MapCells::new(recording, state.moment, request, layout.map_cells());
    let scale = format!(
        "{} a cell, {} in {}: ░ releasable, · free, ▒ pending",
        size(map.cell_bytes),
        size(map.reserved),
        counted(map.ranges as u64, "range"),
    );
    put(buffer, 0, body.y, body.width, &scale, FAINT);
    let largest = format!("largest free part {}", size(map.largest_free));
    let x = match request {
        0 => 0,
        bytes => put(buffer, 0, body.y + 1, body.width, &format!("✗ failed request of {}, ", size(bytes)), ALARM),
    };
    let mut x = put(buffer, x, body.y + 1, body.width, &largest, PLAIN);
    let selected = state.selected[View::Map as usize];
    let Some(grouping) = state.grouping() else { return };
    let mut held: Vec<_> = recording.sums_at(grouping, state.moment).into_iter().zip(&grouping.groups).collect();
    held.sort_by_key(|(bytes, _)| Reverse(*bytes));
    for (_, group) in held.iter().filter(|(bytes, _)| *bytes > 0) {
        if x + 3 + columns(&group.name) < body.width {
            put(buffer, x + 2, body.y + 1, 1, EIGHTHS[7], Style::new().fg(colour(group.slot, group.is_guess)));
            x = put(buffer, x + 4, body.y + 1, body.width, &group.name, FAINT);
        }
    }
    let positions = (layout.map.y..layout.map.y + layout.map.height)
        .flat_map(|y| (layout.map.x..layout.map.x + layout.map.width).map(move |x| (x, y)));
    for (position, part) in positions.zip(&map.cells) {
        let cell = &mut buffer[position];
        if part.is_request {
            cell.set_symbol("✗").set_style(ALARM);
        }
        if part.reserved == 0 {
            continue;
        }
        let Some((row, _)) = part.largest else {
            cell.set_symbol(if part.is_releasable { "░" } else { "·" }).set_style(FAINT);
            continue;
        };
        let group = &grouping.groups[usize::from(grouping.of[row])];
        let is_pending = recording.allocations[row].freed_at.is_some_and(|freed| freed <= state.moment);
        let filled = usize::try_from((part.used * 8).div_ceil(part.reserved)).unwrap_or(8).clamp(1, 8);
        cell.set_symbol(if is_pending { "▒" } else { EIGHTHS[filled - 1] });
        // Adjacent blocks of one group differ in shade.
        let shade = if row % 2 == 0 { Modifier::empty() } else { Modifier::DIM };
        cell.set_style(Style::new().fg(colour(group.slot, group.is_guess)).add_modifier(shade));
        if selected == Some(row) {
            cell.set_symbol("•").set_style(Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    let chosen = selected.and_then(|row| Some((recording.allocations.get(row)?, recording.line_of.get(row)?)));
    let text = match chosen {
        Some((one, line)) => format!("{}  {}", describe_block(one), recording.lines[*line as usize]),
        None => "↑ ↓ or a click selects a block, Enter shows its stack".to_owned(),
    };
    put(buffer, 0, layout.map.y + layout.map.height, body.width, &text, if chosen.is_some() { PLAIN } else { FAINT });
}

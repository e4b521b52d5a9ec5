//! The map of device memory at the moment.

use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Modifier, Style};

use super::layout::{Layout, View};
use super::map_cells::MapCells;
use super::palette::{EIGHTHS, colour};
use super::recording::Recording;
use super::rows::describe_block;
use super::state::State;
use super::text::{ALARM, FAINT, PLAIN, put};
use crate::base::units::{counted, size};
use crate::snapshot::Action;

pub(super) fn draw_map(state: &State<'_, '_>, recording: &Recording, buffer: &mut Buffer, layout: &Layout) {
    let (map, body) = (MapCells::new(recording, state.moment, layout.map_cells()), layout.body);
    let scale = format!(
        "{} a cell, {} reserved in {}: ░ free and releasable, · free between blocks, ▒ freed, in use by a stream",
        size(map.cell_bytes),
        size(map.reserved),
        counted(map.ranges as u64, "range"),
    );
    put(buffer, 0, body.y, body.width, &scale, FAINT);
    draw_request(state, &map, buffer, layout);
    let selected = state.selected[View::Map as usize];
    let Some(grouping) = state.grouping() else { return };
    let positions = (layout.map.y..layout.map.y + layout.map.height)
        .flat_map(|y| (layout.map.x..layout.map.x + layout.map.width).map(move |x| (x, y)));
    for (position, part) in positions.zip(&map.cells) {
        if part.reserved == 0 {
            continue;
        }
        let cell = &mut buffer[position];
        let Some((row, _)) = part.largest else {
            cell.set_symbol(if part.is_releasable { "░" } else { "·" }).set_style(FAINT);
            continue;
        };
        let group = &grouping.groups[usize::from(grouping.of[row])];
        let is_pending = recording.allocations[row].freed_at.is_some_and(|freed| freed <= state.moment);
        let filled = usize::try_from((part.used * 8).div_ceil(part.reserved)).unwrap_or(8).clamp(1, 8);
        cell.set_symbol(if is_pending { "▒" } else { EIGHTHS[filled - 1] });
        // Neighbours of one group are told apart by their shade.
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

/// The request that fails at the moment, else the last one, and the largest free range, in cells.
fn draw_request(state: &State<'_, '_>, map: &MapCells, buffer: &mut Buffer, layout: &Layout) {
    let (y, width) = (layout.body.y + 1, layout.body.width);
    let trace = state.device.device();
    let here = state.moment.checked_sub(1).map(|entry| entry as usize);
    let here = here.filter(|entry| trace.action(*entry) == Some(Action::Oom));
    let cells = |bytes: u64| usize::try_from(bytes.div_ceil(map.cell_bytes)).unwrap_or(usize::MAX).max(1);
    let mut x = 0;
    if let Some(entry) = here.or_else(|| state.device.failed_requests().next_back()) {
        let request = trace.entry(entry).size;
        let bar = "█".repeat(cells(request).min(usize::from(width) / 3));
        x = put(buffer, x, y, width, &format!("failed request of {} ", size(request)), ALARM);
        x = put(buffer, x, y, width, &bar, ALARM) + 2;
    }
    if map.largest_free > 0 {
        let bar = "░".repeat(cells(map.largest_free).min(usize::from(width) / 3));
        x = put(buffer, x, y, width, &format!("largest free part {} ", size(map.largest_free)), PLAIN);
        put(buffer, x, y, width, &bar, FAINT);
    }
}

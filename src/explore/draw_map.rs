//! The map of device memory at the moment.

use std::cmp::Reverse;
use std::ops::Range;

use itertools::Itertools as _;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Modifier, Style};

use super::layout::{Layout, View};
use super::palette::{EIGHTHS, colour};
use super::recording::{Moment, Recording};
use super::rows::describe_block;
use super::state::State;
use super::text::{ALARM, FAINT, PLAIN, columns, put};
use crate::base::units::{counted, size};
use crate::study::lifetimes::{is_live, joined_ranges};

pub(super) fn draw_map(state: &State<'_, '_>, recording: &Recording, buffer: &mut Buffer, layout: &Layout) {
    let (request, body) = (state.failed_request(), layout.body);
    let map = MapCells::new(recording, state.moment, request, layout.map.area() as usize);
    let ([cell, all], ranges) = ([map.cell_bytes, map.reserved].map(size), counted(map.ranges as u64, "range"));
    let scale = format!("{cell} a cell, {all} in {ranges}: ░ releasable, · free, ▒ pending");
    put(buffer, 0, body.y, body.width, &scale, FAINT);
    let largest = format!("largest free part {}", size(map.largest_free));
    let x = match request {
        0 => 0,
        bytes => put(buffer, 0, body.y + 1, body.width, &format!("✗ failed request of {}, ", size(bytes)), ALARM),
    };
    let mut x = put(buffer, x, body.y + 1, body.width, &largest, PLAIN);
    let selected = state.selected[View::Map as usize];
    let Some(grouping) = state.grouping() else { return };
    let held = recording.sums_at(grouping, state.moment).into_iter().zip(&grouping.groups);
    for (_, group) in held.filter(|(bytes, _)| *bytes > 0).sorted_by_key(|(bytes, _)| Reverse(*bytes)) {
        if x + 3 + columns(&group.name) < body.width {
            put(buffer, x + 2, body.y + 1, 1, EIGHTHS[7], Style::new().fg(colour(group.slot, group.is_guess)));
            x = put(buffer, x + 4, body.y + 1, body.width, &group.name, FAINT);
        }
    }
    for (position, part) in layout.map.positions().zip(&map.cells) {
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
        let is_pending = recording.allocations[row].freed_at().is_some_and(|freed| freed <= state.moment);
        let filled = usize::try_from((part.used * 8).div_ceil(part.reserved)).unwrap_or(8).clamp(1, 8);
        cell.set_symbol(if is_pending { "▒" } else { EIGHTHS[filled - 1] });
        // Adjacent blocks of one group differ in shade.
        let shade = if row % 2 == 0 { Modifier::empty() } else { Modifier::DIM };
        cell.set_style(Style::new().fg(colour(group.slot, group.is_guess)).add_modifier(shade));
        if selected == Some(row) {
            cell.set_symbol("•").set_style(Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    let chosen = selected.and_then(|row| Some((row, recording.line_of.get(row)?)));
    let text = match chosen {
        Some((row, line)) => format!("{}  {}", describe_block(recording, row), recording.lines[*line as usize]),
        None => "↑ ↓ select a block, Enter shows its stack".to_owned(),
    };
    put(buffer, 0, layout.map.y + layout.map.height, body.width, &text, if chosen.is_some() { PLAIN } else { FAINT });
}

/// Sizes of cells are multiples of this: PyTorch's smallest block (`kMinBlockSize`).
const UNIT: u64 = 512;

/// A cell of the map.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MapCell {
    /// Reserved bytes; 0 between ranges and after the last.
    pub(super) reserved: u64,
    /// Bytes of blocks in use.
    pub(super) used: u64,
    /// The allocation with most bytes here, and these bytes.
    pub(super) largest: Option<(usize, u64)>,
    /// No block of its range is in use.
    pub(super) is_releasable: bool,
    /// Part of a failed request, which has no place in memory.
    pub(super) is_request: bool,
}

/// A range of reserved memory, and its place on the map.
struct PlacedRange {
    address: u64,
    end: u64,
    /// In bytes from the start of the map.
    offset: u64,
}

/// The map.
#[derive(Debug)]
pub(super) struct MapCells {
    pub(super) cells: Vec<MapCell>,
    pub(super) cell_bytes: u64,
    pub(super) reserved: u64,
    pub(super) ranges: usize,
    /// The largest free part of a range.
    pub(super) largest_free: u64,
}

impl MapCells {
    /// The memory at `moment`, and behind it a failed request of `request` bytes, in at most `count` cells.
    pub(super) fn new(recording: &Recording, moment: Moment, request: u64, count: usize) -> Self {
        let mut ranges = ranges_at(recording, moment);
        let reserved = ranges.iter().map(|range| range.end - range.address).sum::<u64>();
        let count = count.max(1);
        // A request takes a cell, and two lie before it.
        let request = if count < 3 { 0 } else { request };
        let has_gaps = ranges.len() * 4 <= count;
        let mut cell_bytes = reserved.div_ceil(count as u64).next_multiple_of(UNIT).max(UNIT);
        let mut end = place(&mut ranges, cell_bytes, has_gaps);
        while request_range(request, end, cell_bytes).end.div_ceil(cell_bytes) > count as u64 {
            cell_bytes = (cell_bytes + cell_bytes / 16).next_multiple_of(UNIT) + UNIT;
            end = place(&mut ranges, cell_bytes, has_gaps);
        }
        let cells = vec![MapCell::default(); count];
        let mut map = Self { cells, cell_bytes, reserved, ranges: ranges.len(), largest_free: 0 };
        let end = ranges.last().map_or(0, |range| range.offset + (range.end - range.address));
        map.spread(request_range(request, end, cell_bytes), |cell, _| cell.is_request = true);
        let blocks = blocks_at(recording, moment);
        for range in ranges {
            let first = blocks.partition_point(|row| recording.allocations[*row].address < range.address);
            let (mut free_from, mut used) = (range.address, 0);
            for row in blocks[first..].iter().take_while(|row| recording.allocations[**row].address < range.end) {
                let (one, bytes) = (&recording.allocations[*row], recording.bytes[*row]);
                map.largest_free = map.largest_free.max(one.address.saturating_sub(free_from));
                free_from = free_from.max(one.address.saturating_add(bytes));
                used += bytes;
                let offset = range.offset + (one.address - range.address);
                map.spread(offset..offset + bytes, |cell, bytes| {
                    cell.used += bytes;
                    if cell.largest.is_none_or(|(_, most)| bytes > most) {
                        cell.largest = Some((*row, bytes));
                    }
                });
            }
            map.largest_free = map.largest_free.max(range.end.saturating_sub(free_from));
            map.spread(range.offset..range.offset + (range.end - range.address), |cell, bytes| {
                cell.reserved += bytes;
                cell.is_releasable = used == 0;
            });
        }
        map
    }

    /// Calls `add` with each cell of a part of the map and the bytes of the part in it.
    fn spread(&mut self, part: Range<u64>, mut add: impl FnMut(&mut MapCell, u64)) {
        let mut at = part.start;
        while at < part.end {
            let index = at / self.cell_bytes;
            let next = ((index + 1) * self.cell_bytes).min(part.end);
            let Some(cell) = usize::try_from(index).ok().and_then(|index| self.cells.get_mut(index)) else { return };
            add(cell, next - at);
            at = next;
        }
    }
}

/// The blocks in use at `moment`, by address. Blocks that wait for another stream are among them.
pub(super) fn blocks_at(recording: &Recording, moment: Moment) -> Vec<usize> {
    recording.in_use(moment).sorted_unstable_by_key(|row| recording.allocations[*row].address).collect()
}

/// The reserved ranges at `moment`; those that touch are one.
fn ranges_at(recording: &Recording, moment: Moment) -> Vec<PlacedRange> {
    let window = moment as usize..moment as usize;
    let reserved = recording.segments.iter().filter(|one| is_live(one.start, one.end, &window));
    joined_ranges(reserved).into_iter().map(|(address, end)| PlacedRange { address, end, offset: 0 }).collect()
}

/// The place of a failed request of `request` bytes: a cell stays free behind the memory, which ends at `end`.
fn request_range(request: u64, end: u64, cell_bytes: u64) -> Range<u64> {
    let start = if request > 0 { (end.div_ceil(cell_bytes) + 1) * cell_bytes } else { end };
    start..start.saturating_add(request)
}

/// Places the ranges one after the other; with gaps, each starts a cell, and a cell stays free between two. Returns the
/// end of the last.
fn place(ranges: &mut [PlacedRange], cell_bytes: u64, has_gaps: bool) -> u64 {
    let mut next = 0_u64;
    for range in ranges {
        range.offset = next;
        next = next.saturating_add(range.end - range.address);
        if has_gaps {
            next = (next.div_ceil(cell_bytes) + 1).saturating_mul(cell_bytes);
        }
    }
    if has_gaps { next.saturating_sub(cell_bytes) } else { next }
}

//! Where things are on the screen.

use std::ops::Range;

use ratatui_core::layout::Rect;

use super::recording::{Moment, column_moments};
use super::text::columns;

/// Columns of the labels of the axis.
const LABELS: u16 = 10;
/// Columns of the answer and the legend beside the picture, where there is room: a part of the screen, within bounds.
const SIDE_PARTS: u16 = 3;
const SIDE: [u16; 2] = [34, 60];
/// The narrowest screen with a legend beside the picture.
const WIDE: u16 = 100;
/// A lower view has no steps and phases below the picture, and no legend.
const MIN_WITH_BANDS: u16 = 10;
/// Lines of the legend below it.
const LEGEND_LINES: u16 = 3;

/// A view of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Memory,
    Map,
    Holders,
}

impl View {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::Map, Self::Holders];

    pub(super) fn tab(self) -> &'static str {
        ["1 memory", "2 map", "3 holders"][self as usize]
    }

    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// The parts of the screen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) body: Rect,
    /// There is room for steps and phases below the picture.
    pub(super) has_bands: bool,
    pub(super) foot: u16,
    /// The picture of memory over time, without its labels.
    pub(super) chart: Rect,
    pub(super) legend: Rect,
    /// The cells of the map.
    pub(super) map: Rect,
    /// The rows of a table below its header.
    pub(super) rows: Rect,
}

impl Layout {
    /// The parts of a screen whose answer has `answer` lines.
    pub(super) fn new(area: Rect, answer: u16) -> Self {
        let body = part(area, [0, 1 + answer, 0, 1]);
        let is_wide = Self::is_wide(area);
        let side = (area.width / SIDE_PARTS).clamp(SIDE[0], SIDE[1]);
        let has_bands = body.height >= MIN_WITH_BANDS;
        let [right, below] = if is_wide { [side + 1, 0] } else { [0, LEGEND_LINES.min(body.height / 6)] };
        let [below, bands] = if has_bands { [below, 3] } else { [0, 0] };
        let chart = part(body, [LABELS, 1, right, below + bands]);
        let legend = if is_wide {
            part(body, [body.width.saturating_sub(side), 1, 0, 0])
        } else {
            part(body, [0, body.height.saturating_sub(below), 0, 0])
        };
        let foot = area.y + area.height.saturating_sub(1);
        let [map, rows] = [[0, 2, 0, 1], [0, 1, 0, 0]].map(|margins| part(body, margins));
        Self { body, has_bands, foot, chart, legend, map, rows }
    }

    /// Whether the picture has a column beside it.
    pub(super) fn is_wide(area: Rect) -> bool {
        area.width >= WIDE
    }

    /// The first column of a tab.
    pub(super) fn tab_column(view: View) -> u16 {
        View::ALL[..view as usize].iter().map(|before| columns(before.tab()) + 2).sum()
    }

    /// The column of the picture that has `moment`; `None` if it is outside.
    pub(super) fn column_of(&self, moment: Moment, zoom: &Range<Moment>) -> Option<u16> {
        let width = usize::from(self.chart.width);
        if !zoom.contains(&moment) || width == 0 {
            return None;
        }
        // The last column that starts at the moment or before.
        let index = ((moment - zoom.start) as usize * width + width - 1) / zoom.len();
        let is_after = column_moments(zoom, width, index.min(width - 1)).start > moment as usize;
        let index = if is_after { index.saturating_sub(1) } else { index };
        u16::try_from(index.min(width - 1)).ok().map(|column| self.chart.x + column)
    }

    /// The first row of a table that is shown while `selected` is.
    pub(super) fn first_row(&self, selected: usize) -> usize {
        (selected + 1).saturating_sub(usize::from(self.rows.height))
    }
}

/// The part of `area` inside these margins.
fn part(area: Rect, [left, top, right, bottom]: [u16; 4]) -> Rect {
    Rect {
        x: area.x + left.min(area.width),
        y: area.y + top.min(area.height),
        width: area.width.saturating_sub(left + right),
        height: area.height.saturating_sub(top + bottom),
    }
}

//! Charts drawn in characters.

use super::chart::{Chart, MILLION, Note, Row, Shape};
use super::wrap::wrap;
use crate::units::{percent, plain, size};

const HEIGHT: u64 = 8;
/// Columns for the labels on the left.
const LABELS: usize = 11;
/// Columns to the right of a row, for what is said of it.
const NOTES: usize = 11;
const COLUMNS: std::ops::RangeInclusive<usize> = 10..=160;

/// The characters to draw with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pens {
    pub(super) front: char,
    pub(super) back: char,
    pub(super) axis: char,
    pub(super) mark: char,
    pub(super) range: char,
    pub(super) levels: [char; 8],
}

pub(super) const UNICODE: Pens = Pens {
    front: '█',
    back: '░',
    axis: '│',
    mark: '▲',
    range: '▬',
    levels: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
};

/// The lines of `chart` in at most `width` columns.
pub(super) fn draw(chart: &Chart, width: usize, pens: Pens) -> Vec<String> {
    let is_noted = |row: &Row| matches!(row.note, Note::Text(_) | Note::Extent);
    let beside = if chart.rows.iter().any(is_noted) { NOTES } else { 0 };
    let columns = width.saturating_sub(LABELS + 4 + beside);
    let columns = columns.clamp(*COLUMNS.start(), *COLUMNS.end());
    let drawing = Drawing { chart, columns, pens };
    let lines = chart.rows.iter().flat_map(|row| drawing.row(row));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

struct Drawing<'a> {
    chart: &'a Chart,
    columns: usize,
    pens: Pens,
}

impl Drawing<'_> {
    fn row(&self, row: &Row) -> Vec<String> {
        let drawn = match &row.shape {
            Shape::Area { back, front, names: [back_name, front_name] } => {
                let (solid, shaded) = (self.pens.front, self.pens.back);
                let legend = format!("{solid} {front_name}  {shaded} {back_name}");
                let indent = " ".repeat(LABELS + 2);
                let legend = wrap(&legend, self.columns, &indent);
                let mut lines = vec![format!("{indent}{legend}")];
                lines.extend(self.area(&self.most(back), &self.most(front)));
                return lines;
            }
            Shape::Amounts { values, highest } => {
                let level = |value| if value == 0 { ' ' } else { self.level(value, *highest) };
                self.most(values).into_iter().map(level).collect()
            }
            Shape::Shares(values) => {
                let level = |value: u64| self.level(value / 1000, 1000);
                self.least(values).into_iter().map(level).collect()
            }
            Shape::Marks(spans) => self.spans(spans, self.pens.mark),
            Shape::Ranges(spans) => self.spans(spans, self.pens.range),
            Shape::Ends([left, right]) => {
                let room = self.columns.saturating_sub(left.chars().count());
                format!("{left}{right:>room$}")
            }
        };
        let mut line = format!("{:>LABELS$}  {drawn}", plain(&row.name));
        let (beside, below) = match (&row.note, &row.shape) {
            (Note::Text(text), _) => (Some(plain(text)), None),
            (Note::Extent, Shape::Shares(values)) => (Some(self.extent(values).join("-")), None),
            (Note::ExtentOf(what), Shape::Shares(values)) => {
                let said = format!("{what}: {}", self.extent(values).join(" to "));
                let indent = " ".repeat(LABELS + 2);
                (None, Some(format!("{indent}{}", wrap(&said, self.columns, &indent))))
            }
            _ => (None, None),
        };
        if let Some(note) = beside {
            let drawn = LABELS + 2 + self.columns;
            line = format!("{line:<drawn$}  {note}");
        }
        [line].into_iter().chain(below).collect()
    }

    /// The column of entry `place`, counted from the first that is drawn.
    fn column(&self, place: u64) -> usize {
        let column =
            u128::from(place) * self.columns as u128 / u128::from(self.chart.entries.max(1));
        usize::try_from(column).unwrap_or(usize::MAX)
    }

    /// A value of each bucket in columns: `extreme` of those of the buckets in one. A bucket that spans
    /// several columns fills them all: few entries, wide page.
    fn spread(&self, values: &[u64], extreme: fn(u64, u64) -> u64) -> Vec<u64> {
        let mut out: Vec<Option<u64>> = vec![None; self.columns];
        let starts = &self.chart.starts;
        let next = starts.iter().skip(1).copied().chain([self.chart.entries]);
        for ((start, next), value) in starts.iter().zip(next).zip(values) {
            let (from, to) = (self.column(*start), self.column(next));
            for column in out.get_mut(from..to.max(from + 1)).unwrap_or_default() {
                *column = Some(column.map_or(*value, |old| extreme(old, *value)));
            }
        }
        out.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn most(&self, values: &[u64]) -> Vec<u64> {
        self.spread(values, u64::max)
    }

    fn least(&self, values: &[u64]) -> Vec<u64> {
        self.spread(values, u64::min)
    }

    fn extent(&self, values: &[u64]) -> [String; 2] {
        let drawn = self.least(values);
        let ends = [drawn.iter().min(), drawn.iter().max()];
        ends.map(|end| percent(end.copied().unwrap_or(0) as f64 / MILLION))
    }

    fn level(&self, value: u64, top: u64) -> char {
        let level = u128::from(value) * 8 / (u128::from(top) + 1);
        let level = usize::try_from(level).ok().and_then(|level| self.pens.levels.get(level));
        level.copied().unwrap_or(' ')
    }

    fn spans(&self, spans: &[[u64; 2]], pen: char) -> String {
        let mut columns = vec![' '; self.columns];
        for [first, next] in spans {
            let (from, to) = (self.column(*first), self.column(*next));
            columns.get_mut(from..to.max(from + 1)).unwrap_or_default().fill(pen);
        }
        columns.into_iter().collect()
    }

    fn area(&self, back: &[u64], front: &[u64]) -> Vec<String> {
        let top = back.iter().copied().max().unwrap_or(0).max(1);
        let line = |row: u64| {
            let label = match row {
                0 => "0".to_owned(),
                _ if row + 1 == HEIGHT => size(top),
                _ if row == HEIGHT / 2 => size(top / 2),
                _ => String::new(),
            };
            // A cell is filled when its middle is reached; what is there at all shows at the bottom.
            let reaches = |value: u64| {
                let twice = u128::from(value) * u128::from(HEIGHT) * 2 / u128::from(top);
                twice > u128::from(row) * 2 || (row == 0 && value > 0)
            };
            let cell = |(back, front): (&u64, &u64)| match (reaches(*front), reaches(*back)) {
                (true, _) => self.pens.front,
                (false, true) => self.pens.back,
                (false, false) => ' ',
            };
            let cells: String = back.iter().zip(front).map(cell).collect();
            format!("{label:>LABELS$} {}{cells}", self.pens.axis)
        };
        (0..HEIGHT).rev().map(line).collect()
    }
}

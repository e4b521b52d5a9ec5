//! Charts drawn in characters.

use super::bands::draw_bands;
use super::block::{Band, Chart};
use super::text::display_width;
use super::ticks::{Tick, column_at, lay_out_labels, ticks};
use crate::base::units::{escape_text, size};

/// Width of the labels on the left.
pub(super) const LABEL_COLUMNS: usize = 11;

#[derive(Debug, Clone, Copy)]
pub(super) struct Glyphs {
    pub(super) front: char,
    pub(super) back: char,
    pub(super) axis: char,
    pub(super) mark: char,
    /// Corner, line and tick of the axis.
    pub(super) axis_line: [char; 3],
    /// A cell from its lowest to its highest level.
    pub(super) levels: [char; 8],
}

pub(super) const UNICODE: Glyphs = Glyphs {
    front: '█',
    back: '░',
    axis: '│',
    mark: '▲',
    axis_line: ['└', '─', '┬'],
    levels: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
};

/// Lines of the area.
const HEIGHT: u64 = 8;
/// Width of the note to the right of a row.
const NOTE_COLUMNS: usize = 11;
const COLUMNS: std::ops::RangeInclusive<usize> = 10..=160;
/// Maximum number of lines for the labels of marks.
const LABEL_LINES: usize = 3;

/// The lines of `chart` in at most `width` columns.
pub(super) fn draw(chart: &Chart, width: usize, pens: Glyphs) -> Vec<String> {
    let columns = width.saturating_sub(LABEL_COLUMNS + 4 + NOTE_COLUMNS);
    let drawing = TextChart { chart, columns: columns.clamp(*COLUMNS.start(), *COLUMNS.end()), pens };
    let steps = drawing.bands("step", &chart.steps, true);
    let bands = chart.bands.iter().filter_map(|(name, bands)| drawing.bands(name, bands, false));
    let levels = chart.levels.iter().filter_map(|(name, values)| drawing.levels(name, values));
    let lines = drawing.area().into_iter().chain(drawing.axis()).chain(levels).chain(steps).chain(bands);
    lines.chain(drawing.failures()).map(|line| line.trim_end().to_owned()).collect()
}

struct TextChart<'a> {
    chart: &'a Chart,
    columns: usize,
    pens: Glyphs,
}

/// A row with its name to the left.
fn named(name: &str, drawn: &str) -> String {
    format!("{name:>LABEL_COLUMNS$}  {drawn}")
}

impl TextChart<'_> {
    fn column(&self, place: u64) -> usize {
        column_at(self.chart, self.columns, place)
    }

    /// Allocated memory in front of reserved memory, the legend first.
    fn area(&self) -> Vec<String> {
        let pens = self.pens;
        let legend = [format!("{} allocated", pens.front), format!("{} reserved, not allocated", pens.back)];
        let legend = match legend.join("  ") {
            line if display_width(&line) <= self.columns => vec![line],
            _ => legend.to_vec(),
        };
        let [back, front] = [&self.chart.reserved, &self.chart.allocated].map(|values| self.max_per_column(values));
        let top = back.iter().copied().fold(1, u64::max);
        let rows = (0..HEIGHT).rev().map(|row| {
            let label = match row {
                0 => "0".to_owned(),
                _ if row + 1 == HEIGHT => size(top),
                _ if row == HEIGHT / 2 => size(top / 2),
                _ => String::new(),
            };
            let cells = front.iter().zip(&back).map(|(front, back)| {
                // A cell is filled if the value reaches its middle; in the lowest row any value shows.
                let is_filled = [*front, *back].map(|value| {
                    let twice = u128::from(value) * u128::from(HEIGHT) * 2 / u128::from(top);
                    twice > u128::from(row) * 2 || (row == 0 && value > 0)
                });
                match is_filled {
                    [true, _] => pens.front,
                    [false, true] => pens.back,
                    [false, false] => ' ',
                }
            });
            format!("{label:>LABEL_COLUMNS$} {}{}", pens.axis, cells.collect::<String>())
        });
        legend.iter().map(|line| named("", line)).chain(rows).collect()
    }

    /// The axis: a line with ticks, and their labels.
    fn axis(&self) -> Vec<String> {
        let ticks = ticks(self.chart, self.columns);
        let [corner, part, mark] = self.pens.axis_line;
        let mut line = vec![part; self.columns];
        for Tick { column, .. } in &ticks {
            // A tick beyond the last column is not drawn.
            if let Some(part) = line.get_mut(*column) {
                *part = mark;
            }
        }
        let line: String = line.into_iter().collect();
        let times = ticks.iter().filter_map(|tick| Some((tick.column, tick.time.clone()?))).collect();
        let entries = ticks.into_iter().map(|tick| (tick.column, tick.entry)).collect();
        let (entries, times) = (self.labels("entry", entries), self.labels("time", times));
        let line = format!("{:>LABEL_COLUMNS$} {corner}{line}", "");
        [line].into_iter().chain(entries).chain(times).collect()
    }

    fn labels(&self, name: &str, labels: Vec<(usize, String)>) -> Vec<String> {
        lay_out_labels(labels, self.columns, 1).into_iter().map(|drawn| named(name, &drawn)).collect()
    }

    /// A row of `values`, with the highest of them; `None` if all are zero.
    fn levels(&self, name: &str, values: &[u64]) -> Option<String> {
        let top = values.iter().copied().max().filter(|top| *top > 0)?;
        let levels = self.pens.levels;
        let cells = self.max_per_column(values).into_iter().map(|value| {
            let level = u128::from(value) * levels.len() as u128 / (u128::from(top) + 1);
            if value == 0 { ' ' } else { usize::try_from(level).map_or(' ', |level| levels[level]) }
        });
        let cells: String = cells.collect();
        Some(named(name, &format!("{cells}  {}", size(top))))
    }

    /// A row of `bands`; `None` if no band has a name, or they are too many to be legible.
    fn bands(&self, name: &str, bands: &[Band], are_numbers: bool) -> Option<String> {
        let has_name = bands.iter().any(|band| !band.name.is_empty());
        let drawn = has_name.then(|| draw_bands(bands, are_numbers, self.chart.entries, self.columns, self.pens.axis));
        Some(named(name, &escape_text(&drawn??)))
    }

    /// The marks of failed requests, and below them their labels.
    fn failures(&self) -> Vec<String> {
        let failed = &self.chart.failed;
        if failed.ranges.is_empty() {
            return Vec::new();
        }
        let mut marks = vec![' '; self.columns];
        for [first, next] in &failed.ranges {
            let (from, to) = (self.column(*first), self.column(*next));
            // A range that starts after the last entry has no column.
            marks.get_mut(from..to.max(from + 1)).unwrap_or_default().fill(self.pens.mark);
        }
        let row = named("failed", &format!("{}  {}", String::from_iter(marks), escape_text(&failed.note)));
        let labels = failed.labels.iter().rev().map(|(at, label)| (self.column(*at), escape_text(label)));
        let labels = lay_out_labels(labels.collect(), self.columns, LABEL_LINES);
        [row].into_iter().chain(labels.iter().map(|line| named("", line))).collect()
    }

    /// The maximum of the buckets of each column; a bucket that spans several columns (few entries, wide page) fills all of
    /// them.
    fn max_per_column(&self, values: &[u64]) -> Vec<u64> {
        let mut columns = vec![0; self.columns];
        let starts = &self.chart.starts;
        let next = starts.iter().skip(1).copied().chain([self.chart.entries]);
        for ((start, next), value) in starts.iter().zip(next).zip(values) {
            let (from, to) = (self.column(*start), self.column(next));
            for column in columns.iter_mut().take(to.max(from + 1)).skip(from) {
                *column = (*column).max(*value);
            }
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_memory_is_drawn_in_front_of_reserved_memory() {
        let [reserved, allocated] = [vec![80, 80], vec![40, 80]];
        let chart = Chart { entries: 10, starts: vec![0, 5], reserved, allocated, ..Chart::default() };
        let lines = draw(&chart, 0, UNICODE);
        assert_eq!([&lines[0], &lines[1]].map(|line| line.trim()), ["█ allocated", "░ reserved, not allocated"]);
        let cells: Vec<Vec<char>> = lines[2..10].iter().map(|line| line.chars().collect()).collect();
        let columns = [0, 9].map(|at| cells.iter().map(|line| line[LABEL_COLUMNS + 2 + at]).collect::<String>());
        assert_eq!(columns, ["░░░░████", "████████"]);
    }
}

//! Charts drawn in characters.

use super::area::AreaChart;
use super::bands;
use super::chart::{Chart, ChartRow, MILLION, RowNote, Shape};
use super::glyphs::{Glyphs, LABEL_COLUMNS};
use super::ticks::{column_at, lay_out_labels, ticks};
use crate::base::units::{escape_text, percent};

/// Width of the notes to the right of rows.
const NOTE_COLUMNS: usize = 11;
const COLUMNS: std::ops::RangeInclusive<usize> = 10..=160;
/// Maximum number of lines for the labels of marks.
const LABEL_LINES: usize = 3;

/// The lines of `chart` in at most `width` columns.
pub(super) fn draw(chart: &Chart, width: usize, pens: Glyphs) -> Vec<String> {
    let is_noted = |row: &ChartRow| matches!(row.note, RowNote::Text(_) | RowNote::MinMax);
    let beside = if chart.rows.iter().any(is_noted) { NOTE_COLUMNS } else { 0 };
    let columns = width.saturating_sub(LABEL_COLUMNS + 4 + beside);
    let columns = columns.clamp(*COLUMNS.start(), *COLUMNS.end());
    let drawing = TextChart { chart, columns, pens };
    let lines = chart.rows.iter().flat_map(|row| drawing.draw_row(row));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

struct TextChart<'a> {
    chart: &'a Chart,
    columns: usize,
    pens: Glyphs,
}

impl TextChart<'_> {
    fn draw_row(&self, row: &ChartRow) -> Vec<String> {
        let drawn = match &row.shape {
            Shape::Area { back, front, names } => {
                let [back_name, front_name] = *names;
                let area = AreaChart {
                    back: self.max_per_column(back),
                    front: self.max_per_column(front),
                    names: [front_name, back_name],
                };
                return area.draw(self.pens);
            }
            Shape::Axis => return self.axis(),
            Shape::Labels(labels) => {
                let labels = labels.iter().rev().map(|(at, label)| (self.column(*at), escape_text(label)));
                let lines = lay_out_labels(labels, self.columns, LABEL_LINES);
                let indent = " ".repeat(LABEL_COLUMNS + 2);
                return lines.into_iter().map(|line| format!("{indent}{line}")).collect();
            }
            Shape::Bands { bands, is_numbered } => {
                let (entries, columns) = (self.chart.entries, self.columns);
                let drawn = bands::draw_bands(bands, *is_numbered, entries, columns, self.pens.axis);
                let Some(drawn) = drawn else { return Vec::new() }; // too many bands to be legible
                escape_text(&drawn)
            }
            Shape::Empty => String::new(),
            Shape::Amounts { values, max: highest } => {
                let level = |value| if value == 0 { ' ' } else { self.level_glyph(value, *highest) };
                self.max_per_column(values).into_iter().map(level).collect()
            }
            Shape::Shares(values) => {
                let level = |value: u64| self.level_glyph(value / 1000, 1000);
                self.min_per_column(values).into_iter().map(level).collect()
            }
            Shape::Marks(spans) => self.draw_spans(spans),
        };
        let mut line = format!("{:>LABEL_COLUMNS$}  {drawn}", escape_text(&row.name));
        let beside = match (&row.note, &row.shape) {
            (RowNote::Text(text), _) => Some(escape_text(text)),
            (RowNote::MinMax, Shape::Shares(values)) => Some(self.min_max_labels(values).join("-")),
            _ => None,
        };
        if let Some(note) = beside {
            let drawn = LABEL_COLUMNS + 2 + self.columns;
            line = format!("{line:<drawn$}  {note}");
        }
        vec![line]
    }

    fn column(&self, place: u64) -> usize {
        column_at(self.chart, self.columns, place)
    }

    /// The axis: a line with ticks, and their labels.
    fn axis(&self) -> Vec<String> {
        let ticks = ticks(self.chart, self.columns);
        let [corner, part, mark] = self.pens.axis_line;
        let mut line = vec![part; self.columns];
        for tick in &ticks {
            // A tick beyond the last column is not drawn.
            if let Some(part) = line.get_mut(tick.column) {
                *part = mark;
            }
        }
        let line: String = line.into_iter().collect();
        let row = |name: &str, labels: Vec<(usize, String)>| {
            let labels = lay_out_labels(labels, self.columns, 1);
            labels.into_iter().map(|drawn| format!("{name:>LABEL_COLUMNS$}  {drawn}")).collect::<Vec<_>>()
        };
        let entries = ticks.iter().map(|tick| (tick.column, tick.entry.clone())).collect();
        let times = ticks.iter().filter_map(|tick| Some((tick.column, tick.time.clone()?)));
        let (entries, times) = (row("entry", entries), row("time", times.collect()));
        let line = format!("{:>LABEL_COLUMNS$} {corner}{line}", "");
        [line].into_iter().chain(entries).chain(times).collect()
    }

    /// Resamples buckets to columns. `extreme` combines the buckets of one column; a bucket that spans several columns
    /// (few entries, wide page) fills all of them.
    fn resample<T: Copy + Default>(&self, values: &[T], extreme: fn(T, T) -> T) -> Vec<T> {
        let mut out: Vec<Option<T>> = vec![None; self.columns];
        let starts = &self.chart.starts;
        let next = starts.iter().skip(1).copied().chain([self.chart.entries]);
        for ((start, next), value) in starts.iter().zip(next).zip(values) {
            let (from, to) = (self.column(*start), self.column(next));
            for column in out.iter_mut().take(to.max(from + 1)).skip(from) {
                *column = Some(column.map_or(*value, |old| extreme(old, *value)));
            }
        }
        out.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn max_per_column(&self, values: &[u64]) -> Vec<u64> {
        self.resample(values, u64::max)
    }

    fn min_per_column(&self, values: &[u64]) -> Vec<u64> {
        self.resample(values, u64::min)
    }

    fn min_max_labels(&self, values: &[u64]) -> [String; 2] {
        let drawn = self.min_per_column(values);
        let ends = [drawn.iter().min(), drawn.iter().max()];
        // A chart without columns has no extremes.
        ends.map(|end| percent(end.copied().unwrap_or(0) as f64 / MILLION))
    }

    fn level_glyph(&self, value: u64, top: u64) -> char {
        let level = u128::from(value) * 8 / (u128::from(top) + 1);
        let level = usize::try_from(level).ok().and_then(|level| self.pens.levels.get(level));
        level.copied().unwrap_or(' ')
    }

    fn draw_spans(&self, spans: &[[u64; 2]]) -> String {
        let mut columns = vec![' '; self.columns];
        for [first, next] in spans {
            let (from, to) = (self.column(*first), self.column(*next));
            // A range that starts after the last entry has no column.
            columns.get_mut(from..to.max(from + 1)).unwrap_or_default().fill(self.pens.mark);
        }
        columns.into_iter().collect()
    }
}

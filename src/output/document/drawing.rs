//! Charts drawn in characters.

use super::area::Area;
use super::chart::{Chart, Layer, MILLION, RowNote, ChartRow, Shape};
use super::pens::{LABEL_COLUMNS, Glyphs};
use super::stretches;
use super::ticks::{column, placed, ticks};
use super::wrap::wrap;
use crate::base::units::{escape_text, percent};

/// Columns to the right of a row, for what is said of it.
const NOTES: usize = 11;
const COLUMNS: std::ops::RangeInclusive<usize> = 10..=160;
/// Lines for what is said of marks.
const SAID: usize = 3;

/// The lines of `chart` in at most `width` columns.
pub(super) fn draw(chart: &Chart, width: usize, pens: Glyphs) -> Vec<String> {
    let is_noted = |row: &ChartRow| matches!(row.note, RowNote::Text(_) | RowNote::MinMax);
    let beside = if chart.rows.iter().any(is_noted) { NOTES } else { 0 };
    let columns = width.saturating_sub(LABEL_COLUMNS + 4 + beside);
    let columns = columns.clamp(*COLUMNS.start(), *COLUMNS.end());
    let drawing = Drawing { chart, columns, pens };
    let lines = chart.rows.iter().flat_map(|row| drawing.row(row));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

struct Drawing<'a> {
    chart: &'a Chart,
    columns: usize,
    pens: Glyphs,
}

impl Drawing<'_> {
    fn row(&self, row: &ChartRow) -> Vec<String> {
        let drawn = match &row.shape {
            Shape::Area { back, front, names, layers } => {
                let [back_name, front_name] = *names;
                let area = Area {
                    back: self.most(back),
                    front: self.most(front),
                    names: [front_name, back_name],
                    layers: self.layered(front, layers),
                };
                return area.draw(self.pens);
            }
            Shape::Axis => return self.ground(),
            Shape::Labels(labels) => {
                let labels =
                    labels.iter().rev().map(|(at, said)| (self.column(*at), escape_text(said)));
                let lines = placed(labels, self.columns, SAID);
                let indent = " ".repeat(LABEL_COLUMNS + 2);
                return lines.into_iter().map(|line| format!("{indent}{line}")).collect();
            }
            Shape::Bands { stretches, is_numbered } => {
                let (entries, columns) = (self.chart.entries, self.columns);
                let drawn =
                    stretches::draw(stretches, *is_numbered, entries, columns, self.pens.axis);
                let Some(drawn) = drawn else { return Vec::new() };
                escape_text(&drawn)
            }
            Shape::Empty => String::new(),
            Shape::Amounts { values, max: highest } => {
                let level = |value| if value == 0 { ' ' } else { self.level(value, *highest) };
                self.most(values).into_iter().map(level).collect()
            }
            Shape::Shares(values) => {
                let level = |value: u64| self.level(value / 1000, 1000);
                self.least(values).into_iter().map(level).collect()
            }
            Shape::Marks(spans) => self.spans(spans, self.pens.mark),
            Shape::Ranges(spans) => self.spans(spans, self.pens.range),
        };
        let mut line = format!("{:>LABEL_COLUMNS$}  {drawn}", escape_text(&row.name));
        let (beside, below) = match (&row.note, &row.shape) {
            (RowNote::Text(text), _) => (Some(escape_text(text)), None),
            (RowNote::MinMax, Shape::Shares(values)) => (Some(self.extent(values).join("-")), None),
            (RowNote::MinMaxSentence(what), Shape::Shares(values)) => {
                let said = format!("{what}: {}", self.extent(values).join(" to "));
                let indent = " ".repeat(LABEL_COLUMNS + 2);
                (None, Some(format!("{indent}{}", wrap(&said, self.columns, &indent))))
            }
            _ => (None, None),
        };
        if let Some(note) = beside {
            let drawn = LABEL_COLUMNS + 2 + self.columns;
            line = format!("{line:<drawn$}  {note}");
        }
        [line].into_iter().chain(below).collect()
    }

    fn column(&self, place: u64) -> usize {
        column(self.chart, self.columns, place)
    }

    /// The axis below the area: a line with marks, and what they are.
    fn ground(&self) -> Vec<String> {
        let ticks = ticks(self.chart, self.columns);
        let [corner, part, mark] = self.pens.ground;
        let mut line = vec![part; self.columns];
        for tick in &ticks {
            line.get_mut(tick.column..=tick.column).unwrap_or_default().fill(mark);
        }
        let line: String = line.into_iter().collect();
        let row = |name: &str, labels: Vec<(usize, String)>| {
            let labels = placed(labels, self.columns, 1);
            labels.into_iter().map(|drawn| format!("{name:>LABEL_COLUMNS$}  {drawn}")).collect::<Vec<_>>()
        };
        let entries = ticks.iter().map(|tick| (tick.column, tick.entry.clone())).collect();
        let times = ticks.iter().filter_map(|tick| Some((tick.column, tick.time.clone()?)));
        let (entries, times) = (row("entry", entries), row("time", times.collect()));
        let line = format!("{:>LABEL_COLUMNS$} {corner}{line}", "");
        [line].into_iter().chain(entries).chain(times).collect()
    }

    /// A value of each bucket in columns: `extreme` of those of the buckets in one. A bucket that spans
    /// several columns fills them all: few entries, wide page.
    fn spread<T: Copy + Default>(&self, values: &[T], extreme: fn(T, T) -> T) -> Vec<T> {
        let mut out: Vec<Option<T>> = vec![None; self.columns];
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

    /// Each of `layers` where `front` is highest in a column.
    fn layered<'l>(&self, front: &[u64], layers: &'l [Layer]) -> Vec<(&'l str, Vec<u64>)> {
        let numbered: Vec<(u64, usize)> = front.iter().copied().zip(0..).collect();
        let highest = self.spread(&numbered, Ord::max);
        let here = |values: &[u64]| {
            let here = highest.iter().map(|(_, bucket)| values.get(*bucket).copied());
            here.map(Option::unwrap_or_default).collect()
        };
        layers.iter().map(|layer| (&*layer.name, here(&layer.values))).collect()
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
}

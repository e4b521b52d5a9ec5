//! Memory over time in characters: allocated solid, the rest of reserved shaded; strips and marks below.

use super::style::{Style, wrap};
use crate::analysis::{Bucket, OomReport};
use crate::study::OverTime;
use crate::study::{SERIES_ALLOCATED, SERIES_GAP, SERIES_RESERVED};
use crate::units::{percent, size};

const HEIGHT: u64 = 8;
/// Columns for the labels of the y axis.
pub(super) const LABELS: usize = 11;

/// Buckets of a trace, drawn in columns.
pub(super) struct Axis {
    /// Entries in all buckets.
    pub(super) events: u64,
    /// Where each bucket begins, counted from the first entry that is drawn.
    pub(super) starts: Vec<u64>,
    /// In how many columns.
    pub(super) columns: usize,
}

impl Axis {
    /// The column of entry `place`, counted from the first that is drawn.
    pub(super) fn column(&self, place: u64) -> usize {
        let column = u128::from(place) * self.columns as u128 / u128::from(self.events.max(1));
        usize::try_from(column).unwrap_or(usize::MAX)
    }

    /// A value of each bucket in columns: `extreme` of those of the buckets in one. A bucket that spans
    /// several columns fills them all: few entries, wide terminal.
    pub(super) fn spread<T: Copy + Default>(
        &self,
        values: impl IntoIterator<Item = T>,
        extreme: fn(T, T) -> T,
    ) -> Vec<T> {
        let mut out: Vec<Option<T>> = vec![None; self.columns];
        let next = self.starts.iter().skip(1).copied().chain([self.events]);
        for ((start, next), value) in self.starts.iter().zip(next).zip(values) {
            let (from, to) = (self.column(*start), self.column(next));
            for column in out.get_mut(from..to.max(from + 1)).unwrap_or_default() {
                *column = Some(column.map_or(value, |old| extreme(old, value)));
            }
        }
        out.into_iter().map(Option::unwrap_or_default).collect()
    }
}

/// Allocated and reserved bytes in columns, each line with its newline.
pub(super) fn area(reserved: &[u64], allocated: &[u64], style: Style) -> String {
    let top = reserved.iter().copied().max().unwrap_or(0).max(1);
    let (solid, shaded, axis) = style.pick(("█", "░", "│"), ("#", ".", "|"));
    let mut out = String::new();
    for row in (0..HEIGHT).rev() {
        let label = match row {
            0 => "0".to_owned(),
            _ if row + 1 == HEIGHT => size(top),
            _ if row == HEIGHT / 2 => size(top / 2),
            _ => String::new(),
        };
        let mut line = format!("{label:>LABELS$} {axis}");
        for (r, a) in reserved.iter().zip(allocated) {
            // A cell is filled when its middle is reached; what is there at all shows at the bottom.
            let reaches = |value: u64| {
                let twice = u128::from(value) * u128::from(HEIGHT) * 2 / u128::from(top);
                twice > u128::from(row) * 2 || (row == 0 && value > 0)
            };
            line.push_str(match (reaches(*a), reaches(*r)) {
                (true, _) => solid,
                (false, true) => shaded,
                (false, false) => " ",
            });
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Values from 0 to `top` in columns of one line.
pub(super) fn strip(values: &[u64], top: u64, style: Style) -> String {
    let levels: Vec<char> = style.pick("▁▂▃▄▅▆▇█", "_.-=+*%@").chars().collect();
    let level = |value: &u64| {
        let level = u128::from(*value) * 8 / (u128::from(top) + 1);
        usize::try_from(level).ok().and_then(|level| levels.get(level))
    };
    values.iter().map(|value| level(value).copied().unwrap_or(' ')).collect()
}

/// Which of `columns` are marked, in one line.
pub(super) fn pointers(columns: &[bool], style: Style) -> String {
    let mark = style.pick('▲', '^');
    columns.iter().map(|is_marked| if *is_marked { mark } else { ' ' }).collect()
}

/// The chart, each line with its newline.
pub(super) fn chart(timeline: &OverTime, ooms: &[OomReport], style: Style) -> String {
    let buckets = timeline.samples.buckets();
    let axis = Axis {
        events: timeline.events,
        starts: buckets.iter().map(|bucket| bucket.first as u64).collect(),
        columns: style.width.saturating_sub(LABELS + 4).clamp(10, 160),
    };
    let highest = |series: usize| axis.spread(buckets.iter().map(|b| b.max[series]), u64::max);
    let mut out = area(&highest(SERIES_RESERVED), &highest(SERIES_ALLOCATED), style);
    if !ooms.is_empty() {
        let mut columns = vec![false; axis.columns];
        for oom in ooms {
            if let Some(cell) = columns.get_mut(axis.column(oom.event - timeline.first)) {
                *cell = true;
            }
        }
        let line = format!("{:>LABELS$}  {}", "failed", pointers(&columns, style));
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(&gap_line(buckets, &axis, style));
    out
}

/// The gap ratio over time in one line, at its lowest in each column: what is not allocated even at
/// the busiest moment there.
fn gap_line(buckets: &[Bucket<3>], axis: &Axis, style: Style) -> String {
    let gaps = axis.spread(buckets.iter().map(|b| b.min[SERIES_GAP]), u64::min);
    let share = |thousandths: u64| percent(thousandths as f64 / 1000.0);
    let lowest = gaps.iter().copied().min().unwrap_or(0);
    let highest = gaps.iter().copied().max().unwrap_or(0);
    let meaning = format!(
        "reserved and unused even at the busiest moment of each column: {} to {}",
        share(lowest),
        share(highest)
    );
    let indent = " ".repeat(LABELS + 2);
    let meaning = wrap(&meaning, style.width.saturating_sub(indent.len()), &indent);
    format!("{:>LABELS$}  {}\n{indent}{meaning}\n", "gap", strip(&gaps, 1000, style))
}

//! Memory over time in characters: allocated solid, the rest of reserved shaded.

use super::style::Style;
use crate::analysis::{Bucket, OomReport, SERIES_ALLOCATED, SERIES_GAP, SERIES_RESERVED, Timeline};
use crate::units::{percent, size};

const HEIGHT: u64 = 8;
/// Columns for the labels of the y axis.
const LABELS: usize = 11;

/// A series in each of `columns` equal spans of the trace: `extreme` of the values of the buckets in it.
fn spans(
    timeline: &Timeline,
    columns: usize,
    value: impl Fn(&Bucket<3>) -> u64,
    extreme: fn(u64, u64) -> u64,
) -> Vec<u64> {
    let events = usize::try_from(timeline.events).unwrap_or(usize::MAX).max(1);
    let mut out: Vec<Option<u64>> = vec![None; columns];
    let buckets = timeline.samples.buckets();
    for (i, bucket) in buckets.iter().enumerate() {
        // A bucket that spans several columns fills them all: few entries, wide terminal.
        let next = buckets.get(i + 1).map_or(events, |b| b.first);
        let (from, to) = (bucket.first * columns / events, next * columns / events);
        let value = value(bucket);
        for column in out.get_mut(from..to.max(from + 1)).unwrap_or_default() {
            *column = Some(column.map_or(value, |old| extreme(old, value)));
        }
    }
    out.into_iter().map(Option::unwrap_or_default).collect()
}

/// The chart, each line with its newline.
pub(super) fn chart(timeline: &Timeline, ooms: &[OomReport], style: Style) -> String {
    let columns = style.width.saturating_sub(LABELS + 4).clamp(10, 160);
    let reserved = spans(timeline, columns, |b| b.max[SERIES_RESERVED], u64::max);
    let allocated = spans(timeline, columns, |b| b.max[SERIES_ALLOCATED], u64::max);
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
        for (r, a) in reserved.iter().zip(&allocated) {
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
    out.push_str(&marks(timeline, ooms, columns, style));
    out.push_str(&gap_line(timeline, columns, style));
    out
}

/// A line that points to the failed requests.
fn marks(timeline: &Timeline, ooms: &[OomReport], columns: usize, style: Style) -> String {
    if ooms.is_empty() {
        return String::new();
    }
    let mark = style.pick('▲', '^');
    let mut line = vec![' '; columns];
    for oom in ooms {
        let column = u128::from(oom.event - timeline.first) * columns as u128
            / u128::from(timeline.events.max(1));
        if let Some(cell) = usize::try_from(column).ok().and_then(|c| line.get_mut(c)) {
            *cell = mark;
        }
    }
    let line: String = line.into_iter().collect();
    format!("{:>LABELS$}  {}\n", "failed", line.trim_end())
}

/// The gap ratio over time in one line, at its lowest in each column: what is not allocated even at
/// the busiest moment there.
fn gap_line(timeline: &Timeline, columns: usize, style: Style) -> String {
    let gaps = spans(timeline, columns, |b| b.min[SERIES_GAP], u64::min);
    let levels: Vec<char> = style.pick("▁▂▃▄▅▆▇█", "_.-=+*%@").chars().collect();
    let line: String = gaps
        .iter()
        .map(|gap| {
            let level = usize::try_from(gap * 8 / 1001).unwrap_or(0);
            levels.get(level).copied().unwrap_or(' ')
        })
        .collect();
    let share = |thousandths: u64| percent(thousandths as f64 / 1000.0);
    let lowest = gaps.iter().copied().min().unwrap_or(0);
    let highest = gaps.iter().copied().max().unwrap_or(0);
    format!(
        "{:>LABELS$}  {line}\n{:>LABELS$}  reserved and unused even at the busiest moment of each column: {} to {}\n",
        "gap",
        "",
        share(lowest),
        share(highest)
    )
}

//! Ticks of an axis, and the layout of labels.

use super::block::Chart;
use crate::base::units::{count, duration};

/// Minimum number of spaces between two labels.
const MIN_LABEL_GAP: usize = 2;

/// A tick of the axis.
pub(super) struct Tick {
    pub(super) column: usize,
    /// Its index in the trace.
    pub(super) entry: String,
    /// The time since the first entry, if recorded.
    pub(super) time: Option<String>,
}

/// Ticks of `chart` in `columns` columns, at round entry indexes.
pub(super) fn ticks(chart: &Chart, columns: usize) -> Vec<Tick> {
    let end = chart.first.saturating_add(chart.entries);
    let times = chart.times_us.iter().map(|us| duration(*us).len()).fold(0, usize::max);
    let widest = count(end).len().max(times) + MIN_LABEL_GAP;
    let room = (columns / widest).max(1) as u64;
    let step = round_up(chart.entries.div_ceil(room));
    let first = chart.first.next_multiple_of(step);
    let entries = (0..).map_while(|n| {
        let entry = first.checked_add(step.checked_mul(n)?)?;
        (entry < end).then_some(entry)
    });
    let ticks = entries.map(|entry| {
        let place = entry - chart.first;
        let column = column_at(chart, columns, place);
        let bucket = chart.starts.partition_point(|start| *start <= place).checked_sub(1);
        let time = bucket.and_then(|bucket| chart.times_us.get(bucket));
        Tick { column, entry: count(entry), time: time.map(|us| duration(*us)) }
    });
    ticks.collect()
}

/// The smallest of 1, 2, 5, 10, 20, .. that is at least `n`.
pub(super) fn round_up(n: u64) -> u64 {
    let powers = (0..=u64::MAX.ilog10()).map(|power| 10_u64.pow(power));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|factor| power.saturating_mul(factor)));
    steps.find(|step| *step >= n).unwrap_or(u64::MAX)
}

/// The column of entry `place`, relative to the first entry drawn.
pub(super) fn column_at(chart: &Chart, columns: usize, place: u64) -> usize {
    let column = u128::from(place) * columns as u128 / u128::from(chart.entries.max(1));
    usize::try_from(column).unwrap_or(usize::MAX)
}

/// Lays out `labels` in at most `lines` lines of `columns` columns. A label starts at its column, or ends there if it
/// would not fit on the line. Later labels that do not fit are dropped.
pub(super) fn lay_out_labels(labels: Vec<(usize, String)>, columns: usize, lines: usize) -> Vec<String> {
    let mut drawn: Vec<Vec<char>> = Vec::new();
    for (column, label) in labels {
        let label: Vec<char> = label.chars().collect();
        let fits = column + label.len() <= columns;
        let begin = if fits { column } else { (column + 1).min(columns).saturating_sub(label.len()) };
        let end = begin + label.len();
        let with_margins = begin.saturating_sub(1)..end + 1;
        let at = drawn.iter().position(|line: &Vec<char>| {
            with_margins.clone().all(|column| line.get(column).is_none_or(|here| *here == ' '))
        });
        let at = at.unwrap_or(drawn.len());
        if at == drawn.len() {
            if at == lines {
                continue;
            }
            drawn.push(vec![' '; columns]);
        }
        let line = &mut drawn[at];
        line.resize(line.len().max(end), ' ');
        line[begin..end].copy_from_slice(&label);
    }
    drawn.into_iter().map(|line| line.into_iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        let rounded = [0, 1, 2, 3, 5, 6, 11, 21, 51, 634].map(round_up);
        assert_eq!(rounded, [1, 1, 2, 5, 5, 10, 20, 50, 100, 1000]);
        assert_eq!(round_up(u64::MAX), u64::MAX);
    }

    #[test]
    fn labels_do_not_overlap() {
        let labels = [(3, "one"), (4, "two"), (9, "three"), (0, "left out")];
        let labels = labels.map(|(column, label)| (column, label.to_owned())).to_vec();
        assert_eq!(lay_out_labels(labels, 10, 2), ["   one    ", "    two   "].map(str::to_owned));
    }

    #[test]
    fn ticks_do_not_overlap() {
        let starts: Vec<u64> = (0..500).map(|bucket| bucket * 8).collect();
        let times_us = starts.iter().map(|start| start * 1000).collect();
        let chart = Chart { entries: 4000, first: 7000, starts, times_us, ..Chart::default() };
        for columns in [10, 25, 65, 160] {
            let ticks = ticks(&chart, columns);
            assert!(!ticks.is_empty());
            for (tick, next) in ticks.iter().zip(&ticks[1..]) {
                let width = tick.entry.len().max(tick.time.as_ref().map_or(0, String::len));
                assert!(tick.column + width < next.column, "{columns}");
            }
        }
        let all = ticks(&chart, 65);
        let tick = all.iter().find(|tick| tick.entry == "8,000").unwrap();
        assert_eq!((tick.column, tick.time.as_deref()), (16, Some("1.00 s")));
    }
}

//! Bands of a chart in columns, each with as much of its name as fits.

use super::block::Band;
use super::ticks::round_up;

/// Minimum width of a useful band: its border and two letters.
const MIN_BAND_COLUMNS: usize = 3;

/// Draws bands over `entries` entries in `columns` columns; each column shows the band that covers most of it. Numbered
/// bands are thinned out to fit. Returns `None` if other bands are too many to be legible.
pub(crate) fn draw_bands(
    bands: &[Band],
    is_numbered: bool,
    entries: u64,
    columns: usize,
    border: char,
) -> Option<String> {
    let thinned = if is_numbered { thin_out(bands, columns) } else { Vec::new() };
    let bands = if is_numbered { &thinned } else { bands };
    let names = names_by_column(bands, entries, columns);
    let runs: Vec<&[Option<&str>]> = names.chunk_by(|a, b| a == b).collect();
    if !is_numbered && runs.len() > (columns / MIN_BAND_COLUMNS).max(1) {
        return None;
    }
    let drawn = runs.iter().flat_map(|run| {
        // A truncated number would be another number.
        let name = run.first().copied().flatten().filter(|name| !name.is_empty());
        let shown = name.filter(|name| !is_numbered || name.chars().count() < run.len());
        let text = name.map(|_| border).into_iter().chain(shown.unwrap_or("").chars());
        text.chain(std::iter::repeat(' ')).take(run.len())
    });
    Some(drawn.collect())
}

/// Every n-th of numbered bands, extended to the next one kept, so that their numbers fit.
fn thin_out(bands: &[Band], columns: usize) -> Vec<Band> {
    let widest = bands.iter().map(|band| band.name.len()).fold(0, usize::max) + MIN_BAND_COLUMNS - 1;
    let every = round_up(bands.len().saturating_mul(widest).div_ceil(columns.max(1)) as u64);
    let every = usize::try_from(every).unwrap_or(usize::MAX);
    let mut kept: Vec<Band> = bands.iter().step_by(every).cloned().collect();
    let nexts: Vec<u64> = kept.iter().skip(1).map(|band| band.range[0]).collect();
    let last = bands.last().map_or(0, |band| band.range[1]);
    for (band, next) in kept.iter_mut().zip(nexts.into_iter().chain([last])) {
        band.range[1] = next;
    }
    kept
}

/// The name that covers most of each column.
fn names_by_column(bands: &[Band], entries: u64, columns: usize) -> Vec<Option<&str>> {
    let entries = entries.max(1);
    // First entry of each column. An entry may span several columns.
    let starts: Vec<u64> = (0..=columns as u128)
        .map(|column| (column * u128::from(entries)).div_ceil(columns.max(1) as u128))
        .map(|start| u64::try_from(start).unwrap_or(u64::MAX))
        .collect();
    let mut shares: Vec<Vec<(&str, u64)>> = vec![Vec::new(); columns];
    let mut column = 0;
    for Band { range: [first, next], name } in bands {
        while column + 1 < columns && starts[column + 1] <= *first {
            column += 1;
        }
        for at in (column..columns).take_while(|at| starts[*at] < *next) {
            let share = starts[at + 1].min(*next).saturating_sub(starts[at].max(*first));
            let here = &mut shares[at];
            match here.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += share,
                None => here.push((name, share)),
            }
        }
    }
    let mut before = None;
    let most = (0..columns).map(|column| {
        if starts[column] < starts[column + 1] {
            before = shares[column].iter().max_by_key(|(_, share)| *share).map(|(name, _)| *name);
        }
        before
    });
    most.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bands(spans: &[(u64, u64, &str)]) -> Vec<Band> {
        spans.iter().map(|&(first, next, name)| Band { range: [first, next], name: name.to_owned() }).collect()
    }

    #[test]
    fn names_are_cut_to_their_columns() {
        let phases = bands(&[(10, 40, "init"), (40, 60, "forward"), (60, 100, "backward")]);
        assert_eq!(draw_bands(&phases, false, 100, 20, '|').as_deref(), Some("  |init |for|backwar"));
        assert_eq!(draw_bands(&phases, false, 100, 6, '|'), None);
        let few = bands(&[(0, 1, "init"), (1, 2, "data")]);
        assert_eq!(draw_bands(&few, false, 2, 12, '|').as_deref(), Some("|init |data "));
    }

    #[test]
    fn short_bands_do_not_hide_long_ones() {
        let mut spans = vec![(0, 50, "forward"), (50, 51, "data")];
        spans.extend([(51, 90, "forward"), (90, 100, "")]);
        assert_eq!(draw_bands(&bands(&spans), false, 100, 10, '|').as_deref(), Some("|forward  "));
    }

    #[test]
    fn numbered_bands_are_thinned_out() {
        let names: Vec<String> = (0..100).map(|step| step.to_string()).collect();
        let spans: Vec<_> = names.iter().zip(0..).map(|(name, n)| (n, n + 1, &**name)).collect();
        assert_eq!(
            draw_bands(&bands(&spans), true, 100, 40, '|').as_deref(),
            Some("|0  |10 |20 |30 |40 |50 |60 |70 |80 |90 ")
        );
        let uneven = bands(&[(0, 95, "10"), (95, 98, "11"), (98, 100, "12")]);
        assert_eq!(draw_bands(&uneven, true, 100, 20, '|').as_deref(), Some("|10                |"));
    }
}

//! Stretches of a trace in columns, each with as much of its name as there is room for.

use super::chart::Band;
use super::ticks::round_up;

/// Columns of a stretch that says something: its border, and two letters.
const LEAST: usize = 3;

/// `stretches` of `entries`, drawn in `columns`: each column shows what most of it is. `None` where they are too
/// many, unless they are numbered: then some are drawn, which stand for all.
pub(super) fn draw(
    stretches: &[Band],
    is_numbered: bool,
    entries: u64,
    columns: usize,
    border: char,
) -> Option<String> {
    let thinned = if is_numbered { thin(stretches, columns) } else { Vec::new() };
    let stretches = if is_numbered { &thinned } else { stretches };
    let names = in_columns(stretches, entries, columns);
    let runs: Vec<&[Option<&str>]> = names.chunk_by(|a, b| a == b).collect();
    if !is_numbered && runs.len() > (columns / LEAST).max(1) {
        return None;
    }
    let drawn = runs.iter().flat_map(|run| {
        // A number that is cut is another.
        let name = run.first().copied().flatten().filter(|name| !name.is_empty());
        let shown = name.filter(|name| !is_numbered || name.chars().count() < run.len());
        let text = name.map(|_| border).into_iter().chain(shown.unwrap_or("").chars());
        text.chain(std::iter::repeat(' ')).take(run.len())
    });
    Some(drawn.collect())
}

/// Of numbered stretches those that have room for their numbers, each up to the next of them.
fn thin(stretches: &[Band], columns: usize) -> Vec<Band> {
    let widest = stretches.iter().map(|stretch| stretch.name.len()).max().unwrap_or(0) + LEAST - 1;
    let every = round_up(stretches.len().saturating_mul(widest).div_ceil(columns.max(1)) as u64);
    let every = usize::try_from(every).unwrap_or(usize::MAX);
    let mut kept: Vec<Band> = stretches.iter().step_by(every).cloned().collect();
    let nexts: Vec<u64> = kept.iter().skip(1).map(|stretch| stretch.range[0]).collect();
    let last = stretches.last().map_or(0, |stretch| stretch.range[1]);
    for (stretch, next) in kept.iter_mut().zip(nexts.into_iter().chain([last])) {
        stretch.range[1] = next;
    }
    kept
}

/// The name that has most of each column.
fn in_columns(stretches: &[Band], entries: u64, columns: usize) -> Vec<Option<&str>> {
    let entries = entries.max(1);
    // Where a column begins; a few entries have several columns each.
    let begin = |column: usize| {
        let at = (column as u128 * u128::from(entries)).div_ceil(columns.max(1) as u128);
        u64::try_from(at).unwrap_or(u64::MAX)
    };
    let mut shares: Vec<Vec<(&str, u64)>> = vec![Vec::new(); columns];
    let mut column = 0;
    for Band { range: [first, next], name } in stretches {
        while column + 1 < columns && begin(column + 1) <= *first {
            column += 1;
        }
        let mut at = column;
        while at < columns && begin(at) < *next {
            let share = begin(at + 1).min(*next).saturating_sub(begin(at).max(*first));
            let here = &mut shares[at];
            match here.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += share,
                None => here.push((name, share)),
            }
            at += 1;
        }
    }
    let mut before = None;
    let most = (0..columns).map(|column| {
        if begin(column) < begin(column + 1) {
            let most = shares[column].iter().max_by_key(|(_, share)| *share);
            before = most.map(|(name, _)| *name);
        }
        before
    });
    most.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretches(spans: &[(u64, u64, &str)]) -> Vec<Band> {
        let stretch = |(first, next, name): &(u64, u64, &str)| Band {
            range: [*first, *next],
            name: (*name).to_owned(),
        };
        spans.iter().map(stretch).collect()
    }

    #[test]
    fn names_are_cut_to_their_columns() {
        let phases = stretches(&[(10, 40, "init"), (40, 60, "forward"), (60, 100, "backward")]);
        assert_eq!(draw(&phases, false, 100, 20, '|').as_deref(), Some("  |init |for|backwar"));
        assert_eq!(draw(&phases, false, 100, 6, '|'), None);
        let few = stretches(&[(0, 1, "init"), (1, 2, "data")]);
        assert_eq!(draw(&few, false, 2, 12, '|').as_deref(), Some("|init |data "));
    }

    #[test]
    fn what_is_short_does_not_hide_what_is_long() {
        let mut spans = vec![(0, 50, "forward"), (50, 51, "data")];
        spans.extend([(51, 90, "forward"), (90, 100, "")]);
        assert_eq!(draw(&stretches(&spans), false, 100, 10, '|').as_deref(), Some("|forward  "));
    }

    #[test]
    fn some_numbers_stand_for_all() {
        let names: Vec<String> = (0..100).map(|step| step.to_string()).collect();
        let spans: Vec<_> = names.iter().zip(0..).map(|(name, n)| (n, n + 1, &**name)).collect();
        assert_eq!(
            draw(&stretches(&spans), true, 100, 40, '|').as_deref(),
            Some("|0  |10 |20 |30 |40 |50 |60 |70 |80 |90 ")
        );
        let uneven = stretches(&[(0, 95, "10"), (95, 98, "11"), (98, 100, "12")]);
        assert_eq!(draw(&uneven, true, 100, 20, '|').as_deref(), Some("|10                |"));
    }
}

//! Pairs the cells of a notebook that changed between two runs.
//!
//! Each cell is a file of its own, named by a hash of its text (`/tmp/ipykernel_PID/HASH.py`, `<ipython-input-N-HASH>`).
//! A cell that was edited has another hash, and mostly only the function `<module>`: the order of the cells pairs them.

use std::collections::BTreeSet;

use crate::base::ids::SymbolId;

/// Size limit of the score table. Beyond it, cells are paired in order.
const MAX_SCORES: usize = 1 << 18;

/// A cell that only one run has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell<'a> {
    /// Names of its functions.
    pub(super) names: BTreeSet<&'a str>,
    pub(super) file: SymbolId,
}

/// True for the file name of a notebook cell, of Jupyter or Colab.
pub(super) fn is_cell(file: &str) -> bool {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.trim_start_matches('<').starts_with("ipython-input-")
        || file.split(['/', '\\']).any(|directory| directory.starts_with("ipykernel_"))
}

/// Pairs of files, before and after: in the order of the cells, with as many common functions as possible.
pub(super) fn pair_cells(before: &[Cell<'_>], after: &[Cell<'_>]) -> Vec<(SymbolId, SymbolId)> {
    // Use one orientation for both directions, so that the reverse comparison finds the same pairs.
    let content = |cells: &[Cell<'_>]| cells.iter().map(|cell| format!("{:?}", cell.names)).collect::<Vec<_>>();
    if (before.len(), content(before)) > (after.len(), content(after)) {
        return pair_cells(after, before).into_iter().map(|(a, b)| (b, a)).collect();
    }
    let columns = after.len() + 1;
    if (before.len() + 1).saturating_mul(columns) > MAX_SCORES {
        return before.iter().zip(after).map(|(b, a)| (b.file, a.file)).collect();
    }
    // scores[i * columns + j]: the best score of pairing `before[i..]` with `after[j..]`.
    let mut scores = vec![0_usize; (before.len() + 1) * columns];
    for (i, b) in before.iter().enumerate().rev() {
        for (j, a) in after.iter().enumerate().rev() {
            let paired = score(b, a) + scores[(i + 1) * columns + j + 1];
            scores[i * columns + j] = paired.max(scores[(i + 1) * columns + j]).max(scores[i * columns + j + 1]);
        }
    }
    let (mut pairs, mut i, mut j) = (Vec::new(), 0, 0);
    while let (Some(b), Some(a)) = (before.get(i), after.get(j)) {
        let best = scores[i * columns + j];
        let common = score(b, a);
        if common > 0 && common + scores[(i + 1) * columns + j + 1] == best {
            pairs.push((b.file, a.file));
            (i, j) = (i + 1, j + 1);
        } else if scores[(i + 1) * columns + j] == best {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Functions with names are better evidence than `<module>`, which every cell has.
fn score(before: &Cell<'_>, after: &Cell<'_>) -> usize {
    before.names.intersection(&after.names).map(|name| if name.starts_with('<') { 1 } else { 8 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::intern::Symbols;

    #[test]
    fn cells_are_known_by_their_file_names() {
        for cell in [
            "/tmp/ipykernel_812/3941.py",
            "<ipython-input-3-9f2>",
            "/tmp/ipython-input-12-7.py",
            "C:\\T\\ipykernel_9\\1.py",
        ] {
            assert!(is_cell(cell), "{cell}");
        }
        for file in ["/app/train.py", "/app/my_ipykernel/x.py", "<string>"] {
            assert!(!is_cell(file), "{file}");
        }
    }

    #[test]
    fn edited_cells_are_paired_in_order_and_by_functions() {
        let mut symbols = Symbols::default();
        let mut cells = |list: &[(&str, &[&'static str])]| -> Vec<Cell<'static>> {
            let cell = |(file, names): &(&str, &[&'static str])| Cell {
                names: names.iter().copied().collect(),
                file: symbols.intern(file),
            };
            list.iter().map(cell).collect()
        };
        let before = cells(&[("b1", &["<module>"]), ("b2", &["<module>", "train"]), ("b3", &["<module>"])]);
        let after = cells(&[
            ("a1", &["<module>"]),
            ("a2", &["<module>"]),
            ("a3", &["<module>", "train"]),
            ("a4", &["<module>"]),
        ]);
        let named = |symbols: &Symbols, pairs: Vec<(SymbolId, SymbolId)>| -> Vec<(String, String)> {
            pairs.into_iter().map(|(b, a)| (symbols.get(b).to_owned(), symbols.get(a).to_owned())).collect()
        };
        let there = named(&symbols, pair_cells(&before, &after));
        let pair = |b: &str, a: &str| (b.to_owned(), a.to_owned());
        assert_eq!(there, [pair("b1", "a1"), pair("b2", "a3"), pair("b3", "a4")]);
        let back = named(&symbols, pair_cells(&after, &before)).into_iter().map(|(a, b)| (b, a));
        assert_eq!(back.collect::<Vec<_>>(), there);
    }
}

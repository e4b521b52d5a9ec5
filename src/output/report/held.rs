//! The table of who holds memory: the same rows and columns wherever it is shown.

use crate::base::units::{count, percent, ratio};
use crate::output::document::{Cell, Table, amount, faint};
use crate::output::wording::guessed_label;
use crate::study::attribution::{Category, Confidence};
use crate::study::memory::BlockSum;

/// A row of the table.
pub(super) struct HeldRow {
    pub(super) holder: Cell,
    /// `None` if it is not known.
    pub(super) category: Option<(Category, Confidence)>,
    pub(super) sum: BlockSum,
}

/// The column of categories.
const CATEGORY: usize = 1;

/// A row for each of `holders`, with its share of `all`, and one for what is left. Categories have a column if any is
/// known.
pub(super) fn held_table(by: &'static str, holders: impl Iterator<Item = HeldRow>, all: BlockSum) -> Table {
    let (mut rest, mut has_category) = (all, false);
    let cells = |holder: Cell, category: String, sum: BlockSum| {
        let share = percent(ratio(sum.bytes, all.bytes));
        vec![holder, category.into(), amount(sum.bytes).into(), share.into(), count(sum.blocks).into()]
    };
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for HeldRow { holder, category, sum } in holders {
        let category = category.filter(|(category, _)| *category != Category::Other);
        has_category |= category.is_some();
        rest = rest.minus(sum);
        rows.push(cells(holder, category.map_or_else(String::new, |(of, sure)| guessed_label(of, sure)), sum));
    }
    if rest.bytes > 0 {
        rows.push(cells(faint("everything else").into(), String::new(), rest));
    }
    let table = Table::new(&[by, "", "bytes", "share", "blocks"], &[0, CATEGORY], rows).optional_columns(&[4]);
    if has_category { table } else { table.without_column(CATEGORY) }
}

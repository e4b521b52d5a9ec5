//! The table of who holds memory: the same rows and columns wherever it is shown.

use crate::base::units::{count, percent, ratio};
use crate::output::document::{Cell, Table, TableOf, amount, faint};
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

/// A row for each of `holders`, with its share of `all`, and one for what is left. Categories have a column if any is
/// known.
pub(super) fn held_table(by: &'static str, holders: impl Iterator<Item = HeldRow>, all: BlockSum) -> TableOf<HeldRow> {
    let mut rows: Vec<HeldRow> = holders.collect();
    let rest = rows.iter().fold(all, |rest, row| rest.minus(row.sum));
    if rest.bytes > 0 {
        rows.push(HeldRow { holder: faint("everything else").into(), category: None, sum: rest });
    }
    let category = |row: &HeldRow| row.category.filter(|(category, _)| *category != Category::Other);
    let has_category = rows.iter().any(|row| category(row).is_some());
    Table::from_rows(rows)
        .text(by, |row| row.holder.clone())
        .text("", |row| category(row).map_or_else(String::new, |(of, sure)| guessed_label(of, sure)))
        .only_if(has_category)
        .number("bytes", |row| amount(row.sum.bytes))
        .number("share", |row| percent(ratio(row.sum.bytes, all.bytes)))
        .number("blocks", |row| count(row.sum.blocks))
        .optional()
}

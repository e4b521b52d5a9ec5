//! Tables of who holds memory.

use crate::base::units::{count, percent, ratio, size};
use crate::output::document::{Cell, Table};
use crate::study::memory::BlockSum;

/// A row for each of `holders`, with its share of all `bytes`, and one of the `rest` that others hold.
pub(super) fn held_table(
    by: &'static str,
    holders: impl Iterator<Item = (Cell, BlockSum)>,
    (others, rest): (&str, BlockSum),
    bytes: u64,
) -> Table {
    let rest = Some((others.into(), rest)).filter(|(_, rest)| rest.blocks > 0);
    let rows = holders.chain(rest).map(|(holder, held)| {
        let share = percent(ratio(held.bytes, bytes));
        vec![holder, size(held.bytes).into(), share.into(), count(held.blocks).into()]
    });
    Table::new(&[by, "bytes", "share", "blocks"], &[0], rows)
}

//! Tables, with comfy-table, in one look.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle,
};

use super::style::Style;

/// A table of `header`, whose columns named in `left` are aligned to the left, the others right.
pub(super) fn table(
    style: Style,
    header: &[&str],
    left: &[usize],
    rows: Vec<Vec<String>>,
) -> String {
    let mut table = Table::new();
    let rule = style.pick('─', '-');
    let rule = LineStyle::none().fill(rule).junction(rule);
    table.load_style(TableStyle::new().header_separator(rule));
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(style.width.saturating_sub(2)).unwrap_or(u16::MAX));
    table.set_header(header.iter().copied());
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        let is_left = left.contains(&index);
        column.set_padding((0, 1));
        column.set_cell_alignment(if is_left { CellAlignment::Left } else { CellAlignment::Right });
        // A number or an address that is cut says nothing; words may wrap.
        if !is_left || index == 0 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let mut out = String::new();
    for line in table.lines() {
        out.push_str("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

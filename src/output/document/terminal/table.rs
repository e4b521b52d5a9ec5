//! Tables, laid out by comfy-table. On a page too narrow for the columns, each row becomes a few lines. Cells have no
//! emphasis, because comfy-table counts escape sequences as columns.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width};

use super::shorten::{SEPARATORS, shorten};
use super::style::Style;
use crate::output::document::table::{Cell, Table};
use crate::output::document::text::Text;
use crate::output::document::wrap::{display_width, wrap};

/// A text column is never made narrower than this.
const MIN_TEXT_COLUMNS: u16 = 16;
/// Margins on both sides of a table, in total.
const MARGINS: usize = 3;
/// Width of a full bar; pages of at most `PAGE_COLUMNS_WITHOUT_BARS` have none.
const MAX_BAR_COLUMNS: usize = 20;
const PAGE_COLUMNS_WITHOUT_BARS: usize = 70;

/// Renders `table`.
pub(super) fn table(table: &Table, style: Style) -> String {
    let room = style.width.saturating_sub(MARGINS);
    let mut laid_out = lay_out(table, style, None);
    let widths = laid_out.column_max_content_widths();
    let total = widths.iter().map(|width| usize::from(*width) + 2).sum::<usize>().saturating_sub(2);
    if let Some(excess @ 1..) = total.checked_sub(room) {
        if let Some(dropped) = table.optional_columns.first() {
            return self::table(&table.clone().without_column(*dropped), style);
        }
        let widest = widths.iter().enumerate().filter(|(column, _)| table.text_columns.contains(column));
        let widest = widest.max_by_key(|(_, width)| **width);
        let narrowed = widest.map(|(column, width)| {
            (column, usize::from(*width).saturating_sub(excess).max(usize::from(MIN_TEXT_COLUMNS)))
        });
        laid_out = lay_out(table, style, narrowed);
    }
    let mut out = String::new();
    let mut line = |indent: &str, text: &str| {
        out.push_str(format!("{indent}{text}").trim_end());
        out.push('\n');
    };
    if let Some(caption) = &table.caption {
        line("", &wrap(&style.render(caption), style.width, ""));
    }
    let lines: Vec<String> = laid_out.lines().collect();
    let fits = |text: &String| display_width(text.trim_end()) <= style.width.saturating_sub(2);
    let lines = if lines.iter().all(fits) {
        lines
    } else {
        table.rows.iter().flat_map(|row| stack_row(table, row, style)).collect()
    };
    for text in &lines {
        line("  ", text);
    }
    if let Some(note) = &table.note {
        line("  ", &wrap(&style.render(note), room, "  "));
    }
    out
}

/// Lays out the cells; `narrowed` is a column and the width to wrap it to.
fn lay_out(table: &Table, style: Style, narrowed: Option<(usize, usize)>) -> comfy_table::Table {
    let room = |column| match narrowed {
        Some((narrow, room)) if narrow == column => room,
        _ => usize::MAX,
    };
    let rule = style.pick('─', '-');
    let rule = LineStyle::none().fill(rule).junction(rule);
    let mut laid_out = comfy_table::Table::new();
    laid_out.load_style(TableStyle::new().header_separator(rule));
    laid_out.set_content_arrangement(ContentArrangement::Dynamic);
    laid_out.set_width(u16::try_from(style.width.saturating_sub(2)).unwrap_or(u16::MAX));
    laid_out.set_header(table.header.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
    laid_out.add_rows(
        table.rows.iter().map(|row| row.iter().enumerate().map(|(column, cell)| cell_lines(cell, room(column), style))),
    );
    let widths = laid_out.column_max_content_widths();
    for ((index, column), width) in laid_out.column_iter_mut().enumerate().zip(widths) {
        let is_words = table.text_columns.contains(&index);
        column.set_padding((0, 1));
        column.set_cell_alignment(if is_words { CellAlignment::Left } else { CellAlignment::Right });
        // Text may wrap; a number must not be cut.
        column.set_constraint(if is_words && width > MIN_TEXT_COLUMNS {
            ColumnConstraint::LowerBoundary(Width::Fixed(MIN_TEXT_COLUMNS + 1))
        } else {
            ColumnConstraint::ContentWidth
        });
    }
    laid_out
}

/// A row as lines: its first text, and below it the other cells with their column names.
fn stack_row(table: &Table, row: &[Cell], style: Style) -> Vec<String> {
    let room = style.width.saturating_sub(2);
    let first = row
        .iter()
        .enumerate()
        .find(|(column, cell)| table.text_columns.contains(column) && !cell_lines(cell, room, style).is_empty());
    let others = row
        .iter()
        .enumerate()
        .filter(|(column, cell)| first.is_none_or(|(first, _)| first != *column) && !matches!(cell, Cell::Bar(_)));
    let others = others.filter_map(|(column, cell)| {
        let value = cell_lines(cell, usize::MAX, style);
        let name = table.header.get(column).map_or("", AsRef::as_ref);
        (!value.is_empty()).then(|| format!("{name} {}", value.trim()).trim().to_owned())
    });
    let others = others.collect::<Vec<_>>().join(", ");
    let first = first.map(|(_, cell)| cell_lines(cell, room, style));
    let below = format!("    {}", wrap(&others, room.saturating_sub(4), "    "));
    let below = Some(below).filter(|_| !others.is_empty());
    let all = first.into_iter().chain(below).collect::<Vec<_>>().join("\n");
    all.lines().map(str::to_owned).collect()
}

/// A cell, wrapped to `room` columns.
fn cell_lines(cell: &Cell, room: usize, style: Style) -> String {
    let fitted = |text: &Text, indent: usize| {
        let (room, indent) = (room.saturating_sub(indent), " ".repeat(indent));
        format!("{indent}{}", wrap(&shorten_text(text, room, style), room, &indent))
    };
    match cell {
        Cell::Text(text) => fitted(text, 0),
        Cell::Indented(depth, text) => fitted(text, 2 * usize::from(*depth)),
        Cell::WithDetails(text, below) => {
            let below = below.iter().map(|text| fitted(text, 2));
            [fitted(text, 0)].into_iter().chain(below).collect::<Vec<_>>().join("\n")
        }
        Cell::Bar(share) => {
            let room = style.width.saturating_sub(PAGE_COLUMNS_WITHOUT_BARS).min(MAX_BAR_COLUMNS);
            style.pick("█", "#").repeat(bar_columns(*share, room))
        }
    }
}

/// Shortens a location at the end of `text` so that all of it fits into `room` columns.
fn shorten_text(text: &Text, room: usize, style: Style) -> String {
    let mut shown: Vec<String> = text.spans.iter().map(|span| style.escaped(&span.text)).collect();
    let is_place = text.spans.last().is_some_and(|last| last.is_code && last.text.contains(SEPARATORS));
    if let Some((place, before)) = shown.split_last_mut().filter(|_| is_place) {
        let beside: usize = before.iter().map(|text| display_width(text)).sum();
        *place = shorten(place, room.saturating_sub(beside), style.ellipsis());
    }
    shown.concat()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to `room`")]
fn bar_columns(share: f64, room: usize) -> usize {
    (share.clamp(0.0, 1.0) * room as f64).round() as usize
}

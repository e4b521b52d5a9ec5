//! Tables: one line a row, aligned by comfy-table. Columns are dropped and text is cut until a row fits; where that is
//! not enough, each row becomes a few lines. Emphasis is added to finished lines, because comfy-table counts escape
//! sequences as columns.

use anstyle::AnsiColor;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, TableStyle, Width};
use itertools::Itertools as _;

use super::shorten::{fit, wrap};
use super::style::Style;
use crate::output::document::table::{Cell, Judgement, Table};
use crate::output::document::text::{Text, Tone, code, display_width};

/// Columns to the left of the rows. The header begins at the margin: it is the table's heading.
const INDENT: usize = 2;
/// Empty columns between two columns.
const GAP: usize = 2;
/// A text column is never made narrower than this.
const MIN_TEXT_COLUMNS: usize = 16;
/// Wider tables are hard to read across.
const MAX_WIDE_COLUMNS: usize = 100;

/// The lines of `table`, and its note.
pub(super) fn lines(table: &Table, style: Style) -> Vec<String> {
    let Some(widths) = widths(table, style) else {
        return table.narrower().map_or_else(|| stacked(table, style), |narrower| self::lines(&narrower, style));
    };
    let rows = table.rows.iter().map(|row| row.iter().zip(&widths));
    let rows: Vec<Vec<String>> =
        rows.map(|row| row.map(|(cell, width)| cell_lines(cell, *width, style)).collect()).collect();
    let mut out = Vec::new();
    let mut lines = aligned(table, &rows, &widths).into_iter();
    if let Some(header) = lines.next().filter(|_| table.columns.iter().any(|column| !column.heading.is_empty())) {
        let (first, width) = (first_name(table), widths.first().copied().unwrap_or(0));
        // The cell of the first name is empty.
        let others = if first.is_empty() { header.as_str() } else { header.get(width..).unwrap_or_default() };
        let pad = if first.is_empty() { INDENT } else { (width + INDENT).saturating_sub(display_width(first)) };
        out.push(style.bold(format!("{first}{}{others}", " ".repeat(pad)).trim_end()));
    }
    for (row, cells) in table.rows.iter().zip(&rows) {
        let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(1);
        for (index, line) in lines.by_ref().take(height.max(1)).enumerate() {
            out.push(format!("  {}", painted(row, index, line.trim_end(), style)));
        }
    }
    out.extend(note(table, style));
    out
}

fn note(table: &Table, style: Style) -> Option<String> {
    Some(format!("  {}", wrap(&style.render(table.note.as_ref()?), style.width.saturating_sub(INDENT), "  ")))
}

/// The name of a first column of text: it begins at the margin, to the left of the rows.
fn first_name(table: &Table) -> &str {
    table.columns.first().filter(|column| column.is_text).map_or("", |column| &*column.heading)
}

/// The width of each column, with text columns cut as needed; `None` if the table does not fit even so.
fn widths(table: &Table, style: Style) -> Option<Vec<usize>> {
    let room = style.width.saturating_sub(INDENT);
    let widths = (0..table.columns.len()).map(|column| {
        let cells = table.rows.iter().filter_map(|row| row.get(column));
        let lines = cells.map(|cell| cell_lines(cell, usize::MAX, style));
        let widest = lines.flat_map(|cell| cell.lines().map(display_width).collect::<Vec<_>>()).max().unwrap_or(0);
        let name = table.columns.get(column).map_or(0, |column| display_width(&column.heading));
        let name = if column == 0 && !first_name(table).is_empty() { name.saturating_sub(INDENT) } else { name };
        // An empty column still takes one.
        widest.max(name).max(1)
    });
    let mut widths: Vec<usize> = widths.collect();
    let gaps = GAP * widths.len().saturating_sub(1);
    while let Some(excess @ 1..) = (widths.iter().sum::<usize>() + gaps).checked_sub(room) {
        if table.columns.iter().any(|column| column.is_optional) {
            return None;
        }
        let texts = widths.iter().enumerate().filter(|(column, _)| table.is_text(*column));
        let (column, width) = texts.max_by_key(|(_, width)| **width).filter(|(_, width)| **width > MIN_TEXT_COLUMNS)?;
        let narrowed = width.saturating_sub(excess).max(MIN_TEXT_COLUMNS);
        *widths.get_mut(column)? = narrowed;
    }
    if table.is_wide {
        let unused = room.min(MAX_WIDE_COLUMNS - INDENT).saturating_sub(widths.iter().sum::<usize>() + gaps);
        *widths.first_mut()? += unused;
    }
    Some(widths)
}

/// The header and the rows, aligned.
fn aligned(table: &Table, rows: &[Vec<String>], widths: &[usize]) -> Vec<String> {
    let mut laid_out = comfy_table::Table::new();
    laid_out.load_style(TableStyle::new());
    laid_out.set_content_arrangement(ContentArrangement::Dynamic);
    laid_out.set_width(u16::MAX);
    let mut header: Vec<&str> = table.columns.iter().map(|column| &*column.heading).collect();
    if let Some(first) = header.first_mut().filter(|_| !first_name(table).is_empty()) {
        *first = "";
    }
    laid_out.set_header(header);
    laid_out.add_rows(rows);
    for ((index, column), width) in laid_out.column_iter_mut().enumerate().zip(widths) {
        let is_text = table.is_text(index);
        let gap = if index + 1 < widths.len() { GAP } else { 0 };
        column.set_padding((0, u16::try_from(gap).unwrap_or_default()));
        column.set_cell_alignment(if is_text { CellAlignment::Left } else { CellAlignment::Right });
        let width = u16::try_from(width + gap).unwrap_or(u16::MAX);
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
    }
    laid_out.lines().collect()
}

/// Line `index` of `row` with its emphasis.
fn painted(row: &[Cell], index: usize, line: &str, style: Style) -> String {
    let Some(mark) = row.first().and_then(|cell| cell.mark).filter(|_| index == 0) else {
        let first = row.first().map_or(&[][..], |cell| &*cell.text.spans);
        let is_faint = index > 0 || !first.is_empty() && first.iter().all(|span| span.tone == Tone::Faint);
        return if is_faint { style.dim(line) } else { line.to_owned() };
    };
    let colour = match mark {
        Judgement::Good => AnsiColor::Green,
        Judgement::Perhaps => AnsiColor::Yellow,
        Judgement::Bad => AnsiColor::Red,
    };
    let glyph = glyph(mark, style);
    line.replacen(glyph, &style.painted(glyph, colour.on_default().bold()), 1)
}

fn glyph(mark: Judgement, style: Style) -> &'static str {
    let [unicode, ascii] = mark.glyphs();
    style.pick(unicode, ascii)
}

/// Each row as lines: its first text, and below it the other cells with their column names.
fn stacked(table: &Table, style: Style) -> Vec<String> {
    let mut out = Vec::new();
    let room = style.width.saturating_sub(INDENT);
    for row in &table.rows {
        let mut texts = row.iter().enumerate().filter(|(column, _)| table.is_text(*column));
        let first = texts.find(|(_, cell)| !cell_lines(cell, room, style).is_empty());
        let others = row.iter().enumerate().filter(|(column, _)| first.is_none_or(|(first, _)| first != *column));
        let others = others.filter_map(|(column, cell)| {
            let value = cell_lines(cell, usize::MAX, style);
            let name = table.columns.get(column).map_or("", |column| &*column.heading);
            (!value.is_empty()).then(|| format!("{name} {}", value.trim()).trim().to_owned())
        });
        let others = others.collect::<Vec<_>>().join(", ");
        let first = first.map(|(_, cell)| cell_lines(cell, room, style));
        let below = format!("    {}", wrap(&others, room.saturating_sub(4), "    "));
        for text in first.into_iter().chain(Some(below).filter(|_| !others.is_empty())) {
            out.extend(text.lines().map(|line| format!("  {line}")));
        }
    }
    out.extend(note(table, style));
    out
}

/// A cell, cut to `room` columns.
fn cell_lines(cell: &Cell, room: usize, style: Style) -> String {
    let marked = cell.mark.map(|mark| {
        let lines = settings_lines(&cell.text, room.saturating_sub(2), style);
        format!("{} {}", glyph(mark, style), lines.join("\n    "))
    });
    let unmarked = marked.is_none().then(|| (&cell.text, 2 * usize::from(cell.depth.unwrap_or(0))));
    let indented = unmarked.into_iter().chain(cell.details.iter().map(|text| (text, 2)));
    let indented = indented
        .map(|(text, indent)| format!("{}{}", " ".repeat(indent), fit(text, room.saturating_sub(indent), style)));
    marked.into_iter().chain(indented).join("\n")
}

/// Settings of several options on as many lines as they need; other text in one.
fn settings_lines(text: &Text, room: usize, style: Style) -> Vec<String> {
    let [span] = text.spans.as_slice() else { return vec![fit(text, room, style)] };
    if !span.is_code || display_width(&span.text) <= room {
        return vec![fit(text, room, style)];
    }
    let mut lines: Vec<String> = Vec::new();
    for option in span.text.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if display_width(line) + display_width(option.trim_end()) <= room => line.push_str(option),
            _ => lines.push(option.to_owned()),
        }
    }
    let narrower = room.saturating_sub(2);
    lines.into_iter().map(|line| fit(&code(line.trim_end()), narrower, style)).collect()
}

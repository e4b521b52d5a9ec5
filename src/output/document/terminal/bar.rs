//! A bar of the parts of one whole, and its legend.

use anstyle::{AnsiColor, Style as Ansi};

use super::style::Style;
use crate::output::document::block::{BarKind, BarPart};
use crate::output::document::text::display_width;

/// The longest bar: a longer one shows no more.
const MAX_COLUMNS: usize = 96;
/// Columns to the left of the bar, and empty columns between two entries of the legend.
const INDENT: &str = "  ";
const GAP: &str = "   ";

/// The bar, and below it the legend.
pub(super) fn lines(parts: &[BarPart], style: Style) -> Vec<String> {
    let room = style.width.saturating_sub(2 * INDENT.len()).min(MAX_COLUMNS);
    let bar = parts.iter().zip(columns(parts, room)).map(|(part, columns)| drawn(part.kind, columns, style));
    let mut lines = vec![format!("{INDENT}{}", bar.collect::<String>())];
    let (mut legend, mut width) = (INDENT.to_owned(), INDENT.len());
    for part in parts {
        let shown = format!("{} {}", drawn(part.kind, 1, style), style.render(&part.label));
        let gap = if width > INDENT.len() { GAP } else { "" };
        let next = width + gap.len() + display_width(&shown);
        if next > style.width && width > INDENT.len() {
            lines.push(std::mem::replace(&mut legend, format!("{INDENT}{shown}")));
            width = INDENT.len() + display_width(&shown);
        } else {
            legend = format!("{legend}{gap}{shown}");
            width = next;
        }
    }
    lines.push(legend);
    lines
}

/// The columns of each part. They add up to `room`, and a part that is not empty has at least one.
fn columns(parts: &[BarPart], room: usize) -> Vec<usize> {
    let total = parts.iter().map(|part| u128::from(part.bytes)).sum::<u128>().max(1);
    let (mut sum, mut drawn) = (0, 0);
    let mut columns: Vec<usize> = Vec::with_capacity(parts.len());
    for part in parts {
        sum += u128::from(part.bytes);
        let end = usize::try_from((sum * room as u128 + total / 2) / total).unwrap_or(room);
        columns.push(end.saturating_sub(drawn));
        drawn = end;
    }
    for index in 0..columns.len() {
        let is_missing = columns[index] == 0 && parts[index].bytes > 0;
        let widest = (0..columns.len()).max_by_key(|other| columns[*other]).filter(|widest| columns[*widest] > 1);
        if let Some(widest) = widest.filter(|_| is_missing) {
            columns[widest] -= 1;
            columns[index] += 1;
        }
    }
    columns
}

/// `columns` columns of a part.
fn drawn(kind: BarKind, columns: usize, style: Style) -> String {
    let (unicode, ascii, ink) = match kind {
        BarKind::Allocated => ("█", "#", Ansi::new()),
        BarKind::Peak => ("▓", "+", Ansi::new()),
        BarKind::Cached => ("▒", "=", AnsiColor::Yellow.on_default()),
        BarKind::Outside => ("▚", "%", Ansi::new().dimmed()),
        BarKind::Free => ("░", ".", Ansi::new().dimmed()),
        BarKind::Unknown => ("·", "?", Ansi::new().dimmed()),
    };
    style.painted(&style.pick(unicode, ascii).repeat(columns), ink)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: u64, kind: BarKind) -> BarPart {
        BarPart { bytes, kind, label: format!("{bytes} B").into() }
    }

    #[test]
    fn every_part_is_seen_and_the_bar_is_full() {
        let style = Style { width: 24, unicode: false, colour: false };
        let parts = [part(980, BarKind::Allocated), part(1, BarKind::Cached), part(19, BarKind::Free)];
        let shown = lines(&parts, style);
        assert_eq!(shown, ["  ##################=.", "  # 980 B   = 1 B", "  . 19 B"]);
    }

    #[test]
    fn hostile_figures_do_not_overflow() {
        let parts = [part(u64::MAX, BarKind::Allocated), part(u64::MAX, BarKind::Free), part(0, BarKind::Cached)];
        assert_eq!(columns(&parts, 10), [5, 5, 0]);
        assert_eq!(columns(&parts[..1], 0), [0]);
    }
}

//! The page of `oomscope check --trend`.

use super::summary::summary;
use crate::base::units::{count, counted, date, percent, size};
use crate::compare::trend::{TrendKind, TrendReport, TrendRow};
use crate::output::document::{Cell, Document, Table, code};

/// Maximum number of rows on a page.
const MAX_ROWS: usize = 20;

/// Lays out `report`.
pub fn trend(report: &TrendReport) -> Document {
    let mut document = Document::default();
    summary(&mut document, &report.summary());
    if !report.rows.is_empty() {
        let header = ["", "line", "since", "a week", "", "before", "now", "ranks"];
        let others = report.rows.len().saturating_sub(MAX_ROWS) as u64;
        let note = (others > 0).then(|| format!("and {}; --format json has all", counted(others, "other")));
        let rows = report.rows.iter().take(MAX_ROWS).map(cells);
        document.table(Table::new(&header, &[0, 1, 2], rows).optional_columns(&[5]).note(note));
    }
    if let Some(first) = report.rows.first() {
        document.field("first run", code(&*first.since));
    }
    let skipped = [(report.without_time, "without a time"), (report.with_error, "with an error")];
    for (lines, which) in skipped.into_iter().filter(|(lines, _)| *lines > 0) {
        document.paragraph(format!("{} {which}, which do not count", counted(lines, "line")));
    }
    document
}

fn cells(row: &TrendRow) -> Vec<Cell> {
    let [per_week, ratio] = match row.growth {
        TrendKind::Creep => [format!("+{}", size(row.bytes_per_week)), percent(row.ratio_per_week)],
        TrendKind::Step => [String::new(), String::new()],
    };
    vec![
        match row.growth {
            TrendKind::Creep => "creeps".into(),
            TrendKind::Step => "stepped up".into(),
        },
        row.line.clone().into(),
        date(row.since_us).into(),
        per_week.into(),
        ratio.into(),
        size(row.before_bytes).into(),
        size(row.after_bytes).into(),
        count(row.ranks).into(),
    ]
}

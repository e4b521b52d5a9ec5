//! The page of `oomscope check --trend`.

use crate::base::units::{count, counted, date, percent, size};
use crate::compare::trend::{TrendKind, TrendReport, TrendRow};
use crate::output::document::{Cell, Document, Judgement, Table, alarm, code, faint, strong};

/// Rows of the table, at most.
const MAX_ROWS: usize = 10;

/// Lays out `report`.
pub fn trend(report: &TrendReport) -> Document {
    let mut document = Document::default();
    let verdict = report.verdict();
    document.headline(if report.passed { strong(verdict) } else { alarm(verdict) }, faint(report.describe_runs()));
    if !report.rows.is_empty() {
        let header = ["line", "since", "a week", "before", "now", "on"];
        let others = report.rows.len().saturating_sub(MAX_ROWS) as u64;
        let note = (others > 0).then(|| faint(format!("and {}: --format json", counted(others, "other"))));
        let rows = report.rows.iter().take(MAX_ROWS).map(cells);
        document.table(Table::new(&header, &[0, 1, 5], rows).optional_columns(&[5, 3]).wide().note(note));
    }
    document.fields("first run", report.rows.first().map(|first| code(&*first.since)));
    let skipped = [(report.without_time, "without a time"), (report.with_error, "with an error")];
    let skipped = skipped.into_iter().filter(|(lines, _)| *lines > 0);
    document.fields("left out", skipped.map(|(lines, which)| format!("{} {which}", counted(lines, "line"))));
    document.fields("do", report.summary().action);
    document
}

fn cells(row: &TrendRow) -> Vec<Cell> {
    let (mark, per_week) = match row.growth {
        TrendKind::Creep => {
            (Judgement::Bad, format!("+{} ({})", percent(row.ratio_per_week), size(row.bytes_per_week)))
        }
        TrendKind::Step => (Judgement::Perhaps, "one step".to_owned()),
    };
    vec![
        Cell::Marked(mark, row.line.clone().into()),
        date(row.since_us).into(),
        per_week.into(),
        size(row.before_bytes).into(),
        size(row.after_bytes).into(),
        match row.ranks {
            1 => row.rank.clone(),
            n => format!("{} ranks", count(n)),
        }
        .into(),
    ]
}

//! The page of `oomscope plan` for a serving engine: a row for each GPU and number of them.

use crate::analysis::{ServingPlanReport, ServingPlanRow};
use crate::base::units::{count, counted, size};
use crate::output::document::{Cell, Document, Judgement, Table, faint, strong};
use crate::output::wording::format_requests;
use crate::snapshot::Serving;

/// Lengths of requests, in tokens.
const LENGTHS: [u64; 3] = [8192, 32_768, 131_072];

/// Lays out the starts of an engine.
pub fn serving_plan(report: &ServingPlanReport) -> Document {
    let mut document = Document::default();
    document.headline(strong(report.summary().answer), faint(counted(report.rows.len() as u64, "dry run")));
    let mark = |row: &ServingPlanRow| if row.is_started() { Judgement::Good } else { Judgement::Bad };
    let show = |row: &ServingPlanRow, figure: fn(&Serving) -> Option<u64>, format: fn(u64) -> String| {
        row.serving.as_ref().and_then(figure).map_or_else(String::new, format)
    };
    let table = Table::from_rows(&report.rows)
        .text("requests of so many tokens at once, on", |row| Cell::Marked(mark(row), row.label().into()))
        .number("weights", |row| show(row, |serving| serving.weight_bytes, size))
        .number("KV cache", |row| show(row, |serving| serving.kv_cache_bytes, size))
        .number("tokens", |row| show(row, |serving| serving.kv_cache_tokens, count));
    let requests = |row: &ServingPlanRow, length: u64| row.serving.as_ref()?.requests_at(length);
    let table = LENGTHS.iter().fold(table, |table, length| {
        table.number(format!("x {}", count(*length)), |row| {
            requests(row, *length).map_or_else(String::new, format_requests)
        })
    });
    document.table(table.wide());
    for row in &report.rows {
        if let Some(reason) = &row.reason {
            document.warning("not-started", format!("{}: {reason}", row.label()));
        }
    }
    document
}

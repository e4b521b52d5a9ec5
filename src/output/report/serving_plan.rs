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
    let lengths = LENGTHS.iter().map(|length| format!("x {}", count(*length)));
    let header = ["requests of so many tokens at once, on", "weights", "KV cache", "tokens"].map(str::to_owned);
    let header: Vec<String> = header.into_iter().chain(lengths).collect();
    document.table(Table::new(&header, &[0], report.rows.iter().map(cells)).wide());
    for row in &report.rows {
        if let Some(reason) = &row.reason {
            document.warning("not-started", format!("{}: {reason}", row.label()));
        }
    }
    document
}

fn cells(row: &ServingPlanRow) -> Vec<Cell> {
    let mark = if row.is_started() { Judgement::Good } else { Judgement::Bad };
    let serving = row.serving.as_ref();
    let show = |bytes: fn(&Serving) -> Option<u64>| serving.and_then(bytes).map_or_else(String::new, size);
    let tokens = serving.and_then(|serving| serving.kv_cache_tokens).map_or_else(String::new, count);
    let requests = LENGTHS.map(|length| {
        serving.and_then(|serving| serving.requests_at(length)).map_or_else(String::new, format_requests)
    });
    let figures = [show(|serving| serving.weight_bytes), show(|serving| serving.kv_cache_bytes), tokens];
    let figures = figures.into_iter().chain(requests).map(Cell::from);
    std::iter::once(Cell::Marked(mark, row.label().into())).chain(figures).collect()
}

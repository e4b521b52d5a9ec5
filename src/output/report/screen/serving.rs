//! A serving engine: how it divides the memory, and how many requests its KV cache holds.

use crate::analysis::SnapshotReport;
use crate::base::units::{count, percent, ratio};
use crate::output::document::{BarKind, BarPart, Document, Table, amount, code, faint};
use crate::output::report::notes::add_notes;
use crate::output::wording::{command_line, describe_budget, describe_engine, describe_options, format_requests};
use crate::snapshot::Serving;

/// Appends the memory of one GPU as the engine divides it.
pub(super) fn show_engine(document: &mut Document, snapshot: &SnapshotReport, serving: &Serving) {
    add_notes(document, &snapshot.warnings);
    add_bar(document, serving);
    let budget = serving.budget_bytes.unwrap_or_default();
    let table = Table::from_rows(describe_budget(serving))
        .text(format!("memory of a GPU, by {}", describe_engine(serving)), |(name, _)| name.clone())
        .number("bytes", |(_, bytes)| amount(*bytes))
        .number("share", |(_, bytes)| percent(ratio(*bytes, budget)));
    document.table(table.wide());
    add_requests(document, serving);
    document.fields("do", serving.longest_len().map(|length| format!("max_model_len {}", count(length))));
    document.fields("set", describe_options(serving));
    document.fields("next", command_line("report -o memory.html", &snapshot.path).map(code));
}

fn add_bar(document: &mut Document, serving: &Serving) {
    let (Some(device), Some(free), Some(budget)) = (serving.device_bytes, serving.free_bytes, serving.budget_bytes)
    else {
        return;
    };
    let cache = serving.kv_cache_bytes.unwrap_or(0).min(budget);
    let (unused, outside) = (free.saturating_sub(budget), device.saturating_sub(free));
    document.bar([
        BarPart::new(budget - cache, BarKind::Allocated, amount(budget - cache).and(" weights and work")),
        BarPart::new(cache, BarKind::Peak, amount(cache).and(" KV cache")),
        BarPart::new(unused, BarKind::Free, amount(unused).and(" not used")),
        BarPart::new(outside, BarKind::Outside, amount(outside).and(" outside the engine")),
    ]);
}

/// Appends the number of requests of several lengths that the KV cache holds at once.
fn add_requests(document: &mut Document, serving: &Serving) {
    if serving.requests.is_empty() {
        return;
    }
    let table = Table::from_rows([()]).text("requests at once, each of", |()| "");
    let table = serving.requests.iter().fold(table, |table, (length, requests)| {
        let text = format_requests(*requests);
        let text = if *length > serving.max_model_len { faint(text) } else { text.into() };
        table.number(format!("{} tokens", count(*length)), |()| text.clone())
    });
    document.table(table.wide());
}

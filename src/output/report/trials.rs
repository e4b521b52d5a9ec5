//! The pages of `oomscope dry-run --try` and `fit -- COMMAND`: one table each, the best run first.

use crate::analysis::{SizeRunReport, SizeSearchReport, TrialOutcome, TrialReport, TrialsReport};
use crate::base::units::{count, quote_shell_word, size};
use crate::output::document::{Cell, Document, Judgement, Table, Text, code, strong};
use crate::output::wording::{format_requests, location_label};
use crate::snapshot::Serving;
use crate::stacks::frames::CodeLocation;

/// Lays out runs with remedies.
pub fn trials(report: &TrialsReport) -> Document {
    let mut document = Document::default();
    let summary = report.summary();
    document.headline(strong(summary.answer), "");
    if report.runs.iter().any(|run| run.serving.is_some()) {
        document.table(engine_table(report));
        document.fields("copy", summary.copy.map(code));
        return document;
    }
    let mut runs: Vec<&TrialReport> = report.runs.iter().collect();
    runs.sort_by_key(|run| rank(run.outcome));
    let rows = runs.into_iter().map(|run| -> Vec<Cell> {
        let remedy = run.remedy.as_deref().unwrap_or("unchanged");
        let headroom = run.headroom_bytes.map_or_else(String::new, size);
        vec![Cell::Marked(judge(run.outcome), code(remedy)), describe_trial(run).into(), headroom.into()]
    });
    let header = [format!("tried on {}", report.gpu), "the job then".to_owned(), "headroom".to_owned()];
    document.table(Table::new(&header, &[0, 1], rows).wide());
    document.fields("copy", summary.copy.map(code));
    document
}

/// The starts of a serving engine, in their order: each changes one option.
fn engine_table(report: &TrialsReport) -> Table {
    let rows = report.runs.iter().map(|run| -> Vec<Cell> {
        let option = run.remedy.as_deref().unwrap_or("unchanged");
        let serving = run.serving.as_ref();
        let show = |bytes: Option<u64>| bytes.map_or_else(String::new, size);
        let requests = serving.and_then(|serving| serving.requests_at(serving.max_model_len));
        let row = [
            show(serving.and_then(|serving| serving.weight_bytes)),
            show(serving.and_then(|serving| serving.kv_cache_bytes)),
            serving.and_then(|serving| serving.kv_cache_tokens).map_or_else(String::new, count),
            requests.map_or_else(|| describe_no_start(serving), format_requests),
        ];
        std::iter::once(Cell::Marked(judge(run.outcome), code(option))).chain(row.map(Cell::from)).collect()
    });
    let header = [&*format!("started on {}", report.gpu), "weights", "KV cache", "tokens", "requests at once"];
    Table::new(&header.map(str::to_owned), &[0], rows).wide()
}

/// `does not start`, and with which requests it should.
fn describe_no_start(serving: Option<&Serving>) -> String {
    let length = serving.and_then(Serving::longest_len);
    length.map_or_else(|| "does not start".to_owned(), |length| format!("with max_model_len {}", count(length)))
}

fn judge(outcome: TrialOutcome) -> Judgement {
    match outcome {
        TrialOutcome::Ends => Judgement::Good,
        TrialOutcome::MayEnd | TrialOutcome::Unknown => Judgement::Perhaps,
        TrialOutcome::Fails | TrialOutcome::FailsLater | TrialOutcome::NotInEffect => Judgement::Bad,
    }
}

/// The order of outcomes, the best first.
fn rank(outcome: TrialOutcome) -> usize {
    use TrialOutcome::{Ends, Fails, FailsLater, MayEnd, NotInEffect, Unknown};
    [Ends, MayEnd, Unknown, FailsLater, Fails, NotInEffect].iter().position(|other| *other == outcome).unwrap_or(0)
}

fn describe_trial(run: &TrialReport) -> Text {
    let reason = run.reason.as_deref().unwrap_or_default();
    match run.outcome {
        TrialOutcome::Ends => "runs to its end".into(),
        TrialOutcome::MayEnd => format!("may run to its end: {reason}").into(),
        TrialOutcome::Fails => describe_failure("fails", run.requested_bytes, run.location.as_ref()),
        TrialOutcome::FailsLater => describe_failure("fails later", run.requested_bytes, run.location.as_ref()),
        TrialOutcome::Unknown => format!("not known: {reason}").into(),
        TrialOutcome::NotInEffect => "not in effect: the program sets its own".into(),
    }
}

fn describe_failure(verb: &str, requested_bytes: Option<u64>, location: Option<&CodeLocation>) -> Text {
    let requested = requested_bytes.map_or_else(String::new, |bytes| format!(": {} requested", size(bytes)));
    let place = location.map_or_else(Text::default, |location| Text::from(", ").and(location_label(location)));
    Text::from(format!("{verb}{requested}")).and(place)
}

/// Lays out runs at several sizes.
pub fn size_search(report: &SizeSearchReport) -> Document {
    let mut document = Document::default();
    document.headline(strong(report.summary().answer), "");
    if report.is_memory_unknown {
        document.warning("unknown-memory", "some memory is unknown without a GPU, so the largest size may be less");
    }
    let (fitting, failing): (Vec<&SizeRunReport>, Vec<_>) = report.runs.iter().partition(|run| run.fits);
    let runs = fitting.iter().map(|run| quote_shell_word(&format!("{}={}", run.size, run.snapshot)));
    let runs: Vec<String> = runs.collect();
    let rows = fitting.into_iter().rev().chain(failing).map(|run| -> Vec<Cell> {
        let (mark, result) = match (run.fits, run.fits_in_worst_case) {
            (true, true) => (Judgement::Good, "fits".into()),
            (true, false) => (Judgement::Perhaps, "fits, but not in the worst case".into()),
            (false, _) => (Judgement::Bad, describe_failure("fails", run.requested_bytes, run.location.as_ref())),
        };
        let reserved = if run.fits { size(run.reserved_bytes) } else { String::new() };
        vec![Cell::Marked(mark, count(run.size).into()), result.into(), reserved.into()]
    });
    let header = [&*report.name, "", "peak reserved"].map(str::to_owned);
    document.table(Table::new(&header, &[0, 1], rows).wide());
    if runs.len() > 1 {
        document.field("next", code(format!("oomscope fit {}", runs.join(" "))));
    }
    document
}

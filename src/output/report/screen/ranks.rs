//! The ranks of a job, the worst first, and what the worst one says.

use itertools::Itertools as _;

use super::failure;
use crate::allocator::verdict::Verdict;
use crate::analysis::{AnalyzeReport, DeviceReport, DryRunVerdict, Ranks, SnapshotReport};
use crate::base::units::{count, counted, percent, ratio};
use crate::output::document::{Cell, Document, Judgement, Table, alarm, amount, code, faint, strong};
use crate::output::report::phrases::{and_others, row_names, step_label};
use crate::output::wording::{
    command_line, describe_cause, describe_difference, describe_jobs, describe_state, even_out, failure_headline,
};

/// Appends the table of all ranks, why the `worst` failed, and what to do.
pub(crate) fn screen_of_ranks(
    document: &mut Document,
    report: &AnalyzeReport,
    ranks: &Ranks,
    (snapshot, device): (&SnapshotReport, &DeviceReport),
) {
    let (all, failed) = ranks.count_ranks();
    let total = strong(counted(all, "rank"));
    let has_fitted = report.dry_run.as_ref().is_some_and(|job| job.verdict == DryRunVerdict::WouldFit);
    let answer = match failed {
        0 => total.and(": no request failed"),
        _ if has_fitted => total.and(format!(": {} went on after a failed request", count(failed))),
        _ if failed == all => total.and(": ").and(alarm("all ran out of memory")),
        _ => total
            .and(": ")
            .and(alarm(format!("{} ran out of memory", count(failed))))
            .and(format!(", {} did not", count(all - failed))),
    };
    document.headline(answer, faint("worst first"));
    for note in describe_jobs(ranks) {
        document.field("job", note);
    }
    document.table(rank_table(ranks, report.top));
    document.fields("state", describe_state(ranks));
    let why = describe_difference(ranks);
    document.fields("peaks", why.is_none().then_some(&*ranks.peaks));
    document.fields("why", why);
    let action = even_out(ranks, device.advice.first());
    let Some(oom) = device.ooms.last() else {
        document.fields("do", action);
        return document.fields("next", command_line("analyze", &snapshot.path).map(code));
    };
    document.field("worst", failure_headline(snapshot, device, oom));
    document.field("", describe_cause(oom, device));
    match action {
        Some(action) => document.field("do", action),
        None => failure::add_advice(document, snapshot, device, oom),
    }
    document.fields("next", command_line("report -o oom.html", &snapshot.path).map(code));
}

/// One row a device, with a name of its own; the first `limit` rows.
pub(crate) fn rank_table(ranks: &Ranks, limit: usize) -> impl Into<Table> {
    let names = row_names(&ranks.rows);
    let is_one = ranks.rows.iter().map(|row| &row.path).all_equal();
    let has_numbers = ranks.are_numbered();
    let rows = ranks.groups.iter().take(limit).filter_map(|group| {
        let index = *group.first()?;
        let row = ranks.rows.get(index)?;
        let name = if has_numbers { ranks.labels(group) } else { names.get(index)?.clone() };
        let (mark, word) = if row.has_failed() { (Judgement::Bad, "failed") } else { (Judgement::Good, "no failure") };
        let result = row.conclusion.map_or(word, Verdict::word);
        let failure = ranks.failures.iter().find(|group| group.rows.contains(&index));
        Some((Cell::marked(mark, code(name)), result, failure, row))
    });
    let others = ranks.groups.iter().skip(limit).map(Vec::len).sum();
    let note = and_others(others, 0, "other", "; --top shows more").map(faint);
    Table::from_rows(rows)
        .text(if is_one { "device" } else { "rank" }, |(name, ..)| name.clone())
        .text("result", |(_, result, ..)| *result)
        .text("at", |(.., failure, _)| failure.map_or("", |failure| &*failure.line))
        .text("when", |(.., row)| row.phase.and_then(|phase| step_label(row.step, phase)).unwrap_or_default())
        .optional()
        .number("peak reserved", |(.., row)| amount(row.peak_reserved_bytes))
        .number("of device", |(.., row)| {
            let capacity = row.capacity_bytes.or(row.reach_bytes);
            capacity.map_or_else(String::new, |bytes| percent(ratio(row.peak_reserved_bytes, bytes)))
        })
        .wide()
        .note(note)
}

//! The page of `oomscope explain`.

use super::failure_groups::{FailureGroup, group_failures, source_label};
use super::phrases::{frame_label, stack_block};
use super::summary::summary;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::base::units::{count, counted, percent, size};
use crate::explain::{ExplainReport, ExplainedFailure, Recording, RefusedMapping, StatisticsReport};
use crate::output::document::{Cell, Document, Table, Text, alarm, code, faint, strong};

/// Maximum number of rows of messages and of statistics.
const MAX_ROWS: usize = 64;

/// Lays out `report`: explains the first `top` messages in full and lists the others in a table.
pub fn explain(report: &ExplainReport, top: usize) -> Document {
    let mut document = Document::default();
    document.title(match report.path.as_str() {
        "-" => "standard input".into(),
        path => code(path),
    });
    summary(&mut document, &report.summary());
    document.paragraph(describe_input(report));
    let failure_groups = group_failures(&report.failures);
    let (shown, further) = failure_groups.split_at(top.min(failure_groups.len()));
    for (i, group) in shown.iter().enumerate() {
        let failure = group.first;
        self::failure(&mut document, group);
        // A traceback of one frame repeats the line above.
        let traceback = stack_block("traceback", &failure.frames, 0);
        if traceback.frames.len() > 1 {
            document.stack(traceback);
        }
        figures(&mut document, failure, i == 0);
    }
    further_messages(&mut document, further);
    for mapping in &report.refused_mappings {
        refused_mappings(&mut document, mapping);
    }
    statistics(&mut document, &report.statistics);
    if let Some(recording) = &report.recording {
        self::recording(&mut document, recording);
    }
    document
}

fn refused_mappings(document: &mut Document, mapping: &RefusedMapping) {
    document.heading(format!("Warnings of expandable segments, device {}", mapping.device));
    document.paragraph(format!(
        "{}, first in line {}: the device refused memory for an expandable segment, last with {} \
         of {} free. These are warnings, not errors: PyTorch empties its cache and retries, which \
         is slow. expandable_segments is on.",
        counted(mapping.times, "time"),
        count(mapping.line),
        size(mapping.device_free_bytes),
        size(mapping.capacity_bytes)
    ));
}

/// Counts what the log contains.
fn describe_input(report: &ExplainReport) -> String {
    let mut parts = Vec::new();
    if report.message_count > 0 {
        let different = report.failures.len() as u64;
        let mut part = counted(report.message_count, "out-of-memory message");
        if different < report.message_count {
            part = format!("{part}, {} of them different", count(different));
        }
        parts.push(part);
    }
    for (kind, noun) in [("memory_summary", "memory_summary table"), ("memory_stats", "memory_stats")] {
        let n = report.statistics.iter().filter(|s| s.kind == kind).count() as u64;
        match (n, kind) {
            (0, _) => {}
            (n, "memory_stats") => parts.push(format!("{n} {noun}")),
            (n, _) => parts.push(counted(n, noun)),
        }
    }
    let lines = counted(report.lines, "line");
    if parts.is_empty() { lines } else { format!("{} in {lines}", parts.join("; ")) }
}

fn failure(document: &mut Document, group: &FailureGroup) {
    let failure = group.first;
    let mut place = vec![format!("line {}", count(failure.line))];
    let who = group.source_label();
    if !who.is_empty() {
        place.insert(0, who);
    }
    if group.times() > 1 {
        place.push(format!("{} times in the log", count(group.times())));
    }
    if let Some(system) = failure.system.filter(|name| !group.title().contains(name)) {
        place.insert(0, system.to_owned());
    }
    if group.has_several() {
        place.push("numbers of the first".to_owned());
    }
    if let Some(version) = &failure.torch_version {
        place.push(format!("wording of PyTorch {version}"));
    }
    let place = faint(format!(" ({})", place.join("; ")));
    document.heading(alarm(group.title()).and(place));
    let culprit = match &failure.culprit {
        Some(culprit) => strong(frame_label(culprit)).and(source_text(failure.culprit_code.as_deref())),
        None if failure.frames.is_empty() => "unknown: no traceback before the message".into(),
        None => "the traceback has no user code".into(),
    };
    let caller = failure.called_from.as_ref().map(|frame| {
        Text::from("called from ").and(frame_label(frame)).and(source_text(failure.called_from_code.as_deref()))
    });
    document.fields("line", [culprit].into_iter().chain(caller));
    // Verdicts apply to PyTorch's allocator only.
    let verdict = if failure.system.is_some() { "why" } else { failure.verdict.word() };
    document.field(verdict, strong(&*failure.verdict_reason));
    document.field("confidence", describe_certainty(failure));
    document.fields("what to do", failure.advice.iter().map(|advice| Text::from(&**advice)));
}

/// The source text of a line, if known.
fn source_text(text: Option<&str>) -> Text {
    text.map_or_else(Text::default, |text| Text::from(": ").and(code(text)))
}

fn describe_certainty(failure: &ExplainedFailure) -> String {
    let is_unknown = failure.verdict == Verdict::Unknown;
    let sure = match failure.confidence {
        Certainty::Certain if is_unknown => "certain",
        Certainty::Certain => "certain: the numbers of the message decide it",
        Certainty::Possible if is_unknown && failure.system.is_none() => "possible: the message has too few numbers",
        Certainty::Possible => "possible",
    };
    let mut sure = sure.to_owned();
    if failure.within_rounding {
        sure.push_str("; the rounding of the numbers could change it");
    }
    match &failure.settled_by {
        Some(settled_by) => format!("{sure}. To be certain: {settled_by}"),
        None => sure,
    }
}

/// The numbers of a message; `with_meaning` adds a glossary.
fn figures(document: &mut Document, failure: &ExplainedFailure, with_meaning: bool) {
    let figures = &failure.figures;
    if figures.is_empty() {
        return;
    }
    if with_meaning {
        let row = figures.iter().map(|f| vec![f.label.to_owned(), f.printed.clone(), f.meaning.clone()]);
        document.table(Table::new(&["number", "", "meaning"], &[0, 2], row));
    } else {
        let figures: Vec<String> = figures.iter().map(|f| format!("{} {}", f.label, f.printed)).collect();
        document.field("numbers", figures.join(", "));
    }
}

/// The messages after the first ones, one row each.
fn further_messages(document: &mut Document, groups: &[FailureGroup]) {
    if groups.is_empty() {
        return;
    }
    document.heading("Further messages, in log order");
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), size);
    let row = |group: &FailureGroup| {
        let f = group.first;
        vec![
            count(f.line),
            group.source_label(),
            group.devices().unwrap_or_else(|| "-".to_owned()),
            bytes(f.requested_bytes),
            bytes(f.device_free_bytes),
            bytes(f.reserved_bytes),
            f.system.map_or_else(|| f.verdict.to_string(), str::to_owned),
            count(group.times()),
        ]
    };
    let header = ["line", "by", "device", "requested", "free", "reserved", "verdict", "times"];
    let left = groups.len().checked_sub(MAX_ROWS).filter(|left| *left > 0);
    let note = left.map(|n| format!("and {} more (--format json lists them)", count(n as u64)));
    let rows = groups.iter().take(MAX_ROWS).map(row);
    document.table(Table::new(&header, &[1, 6], rows).note(note));
}

fn statistics(document: &mut Document, all: &[StatisticsReport]) {
    let Some(last) = all.last() else { return }; // the log has no table of statistics
    let who = source_label(last.rank, last.source.as_deref());
    let device = last.device.map_or_else(String::new, |device| format!(" of device {device}"));
    let label = if who.is_empty() { String::new() } else { format!("{who}; ") };
    let which = if all.len() > 1 { "the last of them, " } else { "" };
    document.heading(format!("Statistics{device} ({label}{which}line {})", count(last.line)));
    let verdict = match last.state {
        "healthy" => "healthy cache",
        "full" => "full device",
        _ => "fragmentation",
    };
    document.field(verdict, strong(&*last.reason));
    document.field("what to do", last.advice);
    let note = (last.error_bytes > 0).then(|| {
        format!(
            "The table's numbers are truncated to whole units: each may be up to {} more.",
            size(last.error_bytes + 1)
        )
    });
    document.table(Table::new(&["", "now", "peak", "meaning"], &[0, 3], rows(last)).note(note));
    if all.len() > 1 {
        all_statistics(document, all);
    }
}

/// All statistics of a log, one row each.
fn all_statistics(document: &mut Document, all: &[StatisticsReport]) {
    document.heading("All statistics, in log order");
    let row = |s: &StatisticsReport| {
        vec![
            count(s.line),
            source_label(s.rank, s.source.as_deref()),
            s.device.map_or_else(|| "-".to_owned(), |device| device.to_string()),
            size(s.peak_reserved_bytes),
            size(s.peak_allocated_bytes),
            percent(s.waste_ratio),
            s.retries.map_or_else(|| "-".to_owned(), count),
            s.ooms.map_or_else(|| "-".to_owned(), count),
            s.state.to_owned(),
        ]
    };
    let header = ["line", "by", "device", "peak reserved", "peak allocated", "waste", "retries", "OOMs", "state"];
    let left_out = all.len().saturating_sub(MAX_ROWS);
    let note = (left_out > 0).then(|| format!("the last {MAX_ROWS} of {}", count(all.len() as u64)));
    let rows = all.iter().skip(left_out).map(row);
    document.table(Table::new(&header, &[1, 8], rows).note(note));
}

fn recording(document: &mut Document, recording: &Recording) {
    let title = "To see which lines hold the memory, record a snapshot";
    document.heading(format!("{title} (PyTorch {})", recording.torch_version));
    if let Some(command) = recording.command {
        document.code([command]);
        document
            .paragraph("It writes a snapshot when a request fails, and the program needs no change. Without it, add:");
    }
    if !recording.python.is_empty() {
        document.code(&recording.python);
    }
    for note in &recording.notes {
        document.paragraph(&**note);
    }
    document.code(&recording.shell);
}

fn rows(s: &StatisticsReport) -> Vec<Vec<Cell>> {
    let row = |name: &str, now: u64, most: Option<u64>, meaning: &str| {
        let most = most.map_or_else(String::new, size);
        let name = match name.strip_prefix("  ") {
            Some(part) => Cell::Indented(1, part.into()),
            None => name.into(),
        };
        vec![name, size(now).into(), most.into(), meaning.into()]
    };
    let mut rows = vec![
        row("reserved", s.reserved_bytes, Some(s.peak_reserved_bytes), "device memory held by PyTorch's allocator"),
        row("allocated", s.allocated_bytes, Some(s.peak_allocated_bytes), "blocks that tensors hold"),
    ];
    if s.pending_bytes > 0 {
        rows.push(row("pending", s.pending_bytes, None, "freed by the program, still in use on another stream"));
    }
    rows.push(row("free", s.free_bytes, None, "cached for reuse"));
    rows.push(row(
        "  stuck",
        s.inactive_split_bytes,
        None,
        "free memory that shares segments with live blocks (\"non-releasable\"): empty_cache() \
         cannot release it. Expandable segments are not counted",
    ));
    if let Some(bytes) = s.private_pool_bytes {
        rows.push(row("private pools", bytes, None, "reserved memory of CUDA graphs and MemPools"));
    }
    rows
}

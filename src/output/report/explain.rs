//! The page of `oomscope explain`, and its summary: the first message as a failed request, the others in a table; below them all numbers.

use itertools::Itertools as _;

use super::phrases::{and_others, stack_block};
use super::screen::callers;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::analysis::group;
use crate::base::units::{count, counted, size};
use crate::explain::{ExplainReport, ExplainedFailure};
use crate::output::document::{BarKind, BarPart, Document, Source, Table, Text, alarm, amount, code, faint, strong};
use crate::output::wording::{Summary, frame_label};
use crate::stacks::frames::FrameReport;

/// Rows of other messages on the first screen, at most.
const MAX_OTHERS: usize = 8;
/// Rows of messages below it, at most.
const MAX_ROWS: usize = 64;

/// Lays out `report`: the first message, and below it more on the first `top` messages.
pub fn explain(report: &ExplainReport, top: usize) -> Document {
    let groups =
        group(&report.failures, |first, other| Some(first.line) == other.same_as && first.file == other.same_file);
    let groups: Vec<FailureGroup<'_>> = groups.into_iter().map(FailureGroup).collect();
    let Some((first, others)) = groups.split_first() else { return Document::default() }; // a report has a message
    let mut document = first_message(report, first);
    other_messages(&mut document, others, MAX_OTHERS);
    document.fields("next", report.next_command.map(code));
    let mut sections = Document::default();
    for (index, group) in groups.iter().take(top.max(1)).enumerate() {
        if index == 0 {
            sections.heading("Evidence");
        } else {
            message(&mut sections, group);
        }
        details(&mut sections, group.first(), index == 0);
    }
    if others.len() > MAX_OTHERS {
        other_messages(&mut sections, others, MAX_ROWS);
    }
    document.with_sections(sections)
}

/// The screen of the message that ended the program.
fn first_message(report: &ExplainReport, group: &FailureGroup) -> Document {
    let failure = group.first();
    let lines = match &failure.file {
        Some(file) => format!("{file}, line {}", count(failure.line)),
        None => format!("line {} of {}", count(failure.line), count(report.lines)),
    };
    let who = Some(group.source_label()).filter(|who| !who.is_empty());
    let times = Some(group.times()).filter(|times| *times > 1).map(|times| counted(times, "time"));
    let release = failure.torch_version.as_ref().map(|version| format!("PyTorch {version}"));
    let context = who.into_iter().chain([lines]).chain(times).chain(release).join(", ");
    let mut document = Document::with_headline(group.headline(), faint(context));
    if let (Some(line), Some(text)) = (failure.line(), failure.culprit_code.as_deref()) {
        let note = failure.requested_bytes.map_or_else(String::new, size);
        let number = line.line.into();
        document.source(Source { first: number, lines: vec![text.to_owned()], marked: number, note });
    }
    document.callers(callers(&failure.frames, failure.culprit.as_ref(), failure.called_from.as_ref()));
    if let Some(text) = describe_host_memory(failure) {
        document.warning("host-memory", text);
    }
    memory(&mut document, failure);
    document.field("why", failure.reason());
    document.fields("do", failure.advice.first().map(String::as_str));
    // A source line to copy is in the headline.
    let copy = failure.copy.as_deref().filter(|text| !text.contains(".py:"));
    document.fields("copy", copy.map(code));
    document
}

/// The device as the message describes it.
fn memory(document: &mut Document, failure: &ExplainedFailure) {
    let outside = failure.outside_bytes.filter(|_| !failure.exceeds_device);
    let bytes = [failure.allocated_bytes, failure.reserved_bytes, failure.device_free_bytes, outside];
    let [allocated, reserved, free, outside] = bytes.map(Option::unwrap_or_default);
    let cached = reserved.saturating_sub(allocated);
    // The difference of rounded numbers.
    let printed = failure.figures.iter().find(|figure| figure.name == "outside");
    let printed = printed.map_or_else(|| size(outside), |figure| figure.printed.clone());
    // A message that is cut shows only a part of the device.
    let known = [allocated, cached, free, outside].into_iter().fold(0, u64::saturating_add);
    let unknown = failure.capacity_bytes.filter(|_| failure.reserved_bytes.is_none());
    let unknown = unknown.map_or(0, |capacity| capacity.saturating_sub(known));
    let parts = [
        BarPart::new(allocated, BarKind::Allocated, amount(allocated).and(" allocated")),
        BarPart::new(cached, BarKind::Cached, amount(cached).and(" cached")),
        BarPart::new(free, BarKind::Free, amount(free).and(" free on the device")),
        BarPart::new(outside, BarKind::Outside, format!("{printed} outside PyTorch")),
        BarPart::new(unknown, BarKind::Unknown, format!("{} not in this text", size(unknown))),
    ];
    if unknown > 0 || parts.iter().filter(|part| part.bytes > 0).count() > 1 {
        document.bar(parts);
    }
}

/// The other messages, the most frequent first, in `rows` rows.
fn other_messages(document: &mut Document, others: &[FailureGroup], rows: usize) {
    let sorted = others.iter().sorted_by_key(|group| std::cmp::Reverse(group.times()));
    let more = if rows < MAX_ROWS { ": --full" } else { ": --format json" };
    let note = and_others(sorted.len(), rows, "other message", more).map(faint);
    let table = Table::from_rows(sorted.take(rows))
        .text("other messages", |group| brief_message(group.first()))
        .text("by", |group| group.source_label())
        .number("requested", |group| group.first().requested_bytes.map_or_else(String::new, size))
        .number("free", |group| group.first().device_free_bytes.map_or_else(String::new, size))
        .number("times", |group| count(group.times()));
    document.table(table.wide().note(note));
}

/// The verdict or the system, the place of the request, and the line in the log.
fn brief_message(failure: &ExplainedFailure) -> Text {
    let what = failure.system.map_or_else(|| failure.verdict.to_string(), str::to_owned);
    let at = failure.line().map_or_else(Text::default, |line| Text::from("  ").and(frame_label(line)));
    let file = failure.file.as_ref().map_or_else(String::new, |file| format!("{file} "));
    Text::from(what).and(at).and(faint(format!("  {file}line {}", count(failure.line))))
}

/// A message that is not on the first screen.
fn message(document: &mut Document, group: &FailureGroup) {
    document.heading(group.headline());
    document.field("line", count(group.first().line));
    document.field("why", group.first().reason());
    document.fields("do", group.first().advice.first().map(String::as_str));
}

/// The rest of a message's explanation; `with_meaning` adds a glossary of its numbers.
fn details(document: &mut Document, failure: &ExplainedFailure, with_meaning: bool) {
    document.fields("also", failure.advice.iter().skip(1).map(String::as_str));
    document.field("sure", describe_certainty(failure));
    let traceback = stack_block("traceback", &failure.frames, 0);
    if traceback.frames.len() > 1 {
        document.stack(traceback);
    }
    let figures = &failure.figures;
    if with_meaning && !figures.is_empty() {
        let table = Table::from_rows(figures).text("number", |figure| figure.label);
        let table = table.number("as printed", |figure| &*figure.printed).text("meaning", |figure| &*figure.meaning);
        document.table(table);
    } else if !figures.is_empty() {
        let mut figures = figures.iter().map(|figure| format!("{} {}", figure.label, figure.printed));
        document.field("numbers", figures.join(", "));
    }
}

fn describe_certainty(failure: &ExplainedFailure) -> String {
    let is_unknown = failure.verdict == Verdict::Unknown;
    let sure = match failure.confidence {
        Certainty::Certain if is_unknown => "certain",
        Certainty::Certain => "certain: the numbers of the message decide it",
        Certainty::Possible if is_unknown && failure.system.is_none() => "possible: the message has too few numbers",
        Certainty::Possible => "possible",
    };
    let rounding = if failure.within_rounding { "; the rounding of the numbers could change it" } else { "" };
    let settled_by = failure.settled_by.as_deref().map_or_else(String::new, |by| format!(". To be certain: {by}"));
    format!("{sure}{rounding}{settled_by}")
}

/// The same failure on one or more ranks, in the order of the log.
struct FailureGroup<'a>(Vec<&'a ExplainedFailure>);

impl FailureGroup<'_> {
    fn first(&self) -> &ExplainedFailure {
        self.0[0]
    }

    /// Number of occurrences in the log.
    fn times(&self) -> u64 {
        self.0.iter().map(|failure| failure.times).sum()
    }

    /// The sources of the messages: `rank 3, node-1`, `ranks 0-6, 9`.
    fn source_label(&self) -> String {
        let ExplainedFailure { rank, source, .. } = self.first();
        let first = rank.map(|rank| format!("rank {rank}")).into_iter().chain(source.clone()).join(", ");
        if self.0.len() == 1 {
            return first;
        }
        let ranks: Vec<u64> = self.0.iter().filter_map(|f| f.rank).map(u64::from).collect();
        if ranks.len() == self.0.len() {
            return format!("ranks {}", ranges(ranks));
        }
        format!("{} sources, first {first}", self.0.len())
    }

    /// The headline, with the devices as ranges.
    fn headline(&self) -> Text {
        let devices: Vec<u64> = self.0.iter().filter_map(|failure| failure.device).collect();
        self.first().headline((!devices.is_empty()).then(|| ranges(devices)).as_deref())
    }
}

/// `0-6, 9`
fn ranges(numbers: Vec<u64>) -> String {
    let numbers: Vec<u64> = numbers.into_iter().sorted_unstable().dedup().collect();
    let mut ranges = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        few => few.iter().join(""),
    });
    ranges.join(", ")
}

impl ExplainReport {
    /// Summarizes the first message, which ended the program; later ones often follow from it.
    pub fn summary(&self) -> Summary {
        let mut summary = self.failures.first().map(summarize_failure).unwrap_or_default(); // a report has a message
        let same = self.failures.iter().filter(|failure| failure.same_as.is_some()).count();
        if same > 0 {
            let ranks = counted(same as u64, "other rank");
            summary.answer = format!("{}; the same on {ranks}", summary.answer);
        }
        let others = self.failures.iter().skip(1).filter(|failure| failure.same_as.is_none()).count();
        if others > 0 {
            let others = counted(others as u64, "other message");
            summary.answer = format!("{}; {others} in this log", summary.answer);
        }
        summary
    }
}

fn summarize_failure(failure: &ExplainedFailure) -> Summary {
    let device = failure.device.map(|device| device.to_string());
    let answer = format!("{}; {}", failure.headline(device.as_deref()).raw(), failure.reason());
    let (action, copy) = (failure.advice.first().cloned(), failure.copy.clone());
    Summary { action, copy, ..Summary::from_answer(answer) }
}

impl ExplainedFailure {
    /// `out of memory on GPU 0: train.py:16 block requested 64 MiB`
    pub(crate) fn headline(&self, devices: Option<&str>) -> Text {
        let start = alarm(self.describe(devices));
        let requested = self.requested_bytes.filter(|_| self.system.is_none()).map(|bytes| strong(size(bytes)));
        match (self.line(), requested) {
            (Some(line), Some(bytes)) => start.and(": ").and(frame_label(line)).and(" requested ").and(bytes),
            (Some(line), None) => start.and(": ").and(frame_label(line)),
            (None, Some(bytes)) => start.and(": ").and(bytes).and(" requested"),
            (None, None) => start,
        }
    }

    /// The line of the message; those of a server that refuses to start are not the user's.
    pub(crate) fn line(&self) -> Option<&FrameReport> {
        self.culprit.as_ref().filter(|_| self.kind != "serving")
    }

    /// The verdict and its reason.
    pub(crate) fn reason(&self) -> String {
        if self.system.is_some() {
            return self.verdict_reason.clone();
        }
        let probably = if self.confidence == Certainty::Possible { ", probably" } else { "" };
        match self.verdict {
            Verdict::Unknown => format!("not known: {}", self.verdict_reason),
            verdict => format!("{verdict}{probably}: {}", self.verdict_reason),
        }
    }
}

/// Host memory that PyTorch took for device memory.
fn describe_host_memory(failure: &ExplainedFailure) -> Option<String> {
    let (reserved, capacity) = failure.reserved_bytes.zip(failure.capacity_bytes).filter(|_| failure.exceeds_device)?;
    let [reserved, capacity] = [reserved, capacity].map(size);
    Some(format!("{reserved} reserved on a device of {capacity}: the rest is slow host memory that Windows added"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_become_ranges() {
        assert_eq!(ranges(vec![9, 0, 1, 2, 2, 4, 5]), "0-2, 4-5, 9");
        assert_eq!(ranges(vec![7]), "7");
        assert_eq!(ranges(Vec::new()), "");
    }
}

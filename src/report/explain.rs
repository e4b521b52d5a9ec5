//! The page of `oomscope explain`.

use super::sheet::Page;
use super::style::{Style, wrap};
use super::words::{place_in, telling_frames};
use crate::analysis::{ExplainReport, Failure, Recording, StatisticsReport};
use crate::units::{count, counted, percent, plain, size};
use crate::verdict::Verdict;

/// Messages that are explained in full; of the others, a row each.
const SHOWN: usize = 3;
/// Rows of messages and of statistics.
const MOST_ROWS: usize = 64;
/// Frames of a traceback.
const SHOWN_FRAMES: usize = 6;

/// The page for a person.
pub fn explain_page(report: &ExplainReport, style: Style) -> String {
    let mut page = Page::new(style);
    let name = match report.path.as_str() {
        "-" => "standard input".to_owned(),
        path => plain(path),
    };
    page.line(&style.heading(&name));
    page.text(&found(report));
    for (i, failure) in report.failures.iter().take(SHOWN).enumerate() {
        page.failure(failure);
        page.traceback(failure);
        page.figures(failure, i == 0);
    }
    page.further(report.failures.get(SHOWN..).unwrap_or_default());
    for mapping in &report.refused_mappings {
        page.heading(&format!("Warnings of expandable segments, device {}", mapping.device));
        page.text(&format!(
            "{}, first in line {}: the device refused memory for an expandable segment, last with {} of {} \
             free. A warning each, no error: PyTorch empties its cache and tries again, which is slow. \
             expandable_segments is on.",
            counted(mapping.times, "time"),
            count(mapping.line),
            size(mapping.device_free_bytes),
            size(mapping.capacity_bytes)
        ));
    }
    page.statistics(&report.statistics);
    if let Some(recording) = &report.recording {
        page.recording(recording);
    }
    page.out
}

/// One line on what there is.
fn found(report: &ExplainReport) -> String {
    let mut parts = Vec::new();
    if report.message_count > 0 {
        let different = report.failures.len() as u64;
        let mut part = counted(report.message_count, "out-of-memory message");
        if different < report.message_count {
            part = format!("{part}, {} of them different", count(different));
        }
        parts.push(part);
    }
    for (kind, noun) in
        [("memory_summary", "memory_summary table"), ("memory_stats", "memory_stats")]
    {
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

/// Who wrote it: `rank 3, node-1`.
fn by(rank: Option<u32>, source: Option<&str>) -> String {
    let rank = rank.map(|rank| format!("rank {rank}"));
    let parts: Vec<String> = rank.into_iter().chain(source.map(str::to_owned)).collect();
    parts.join(", ")
}

/// What failed.
fn title(failure: &Failure) -> String {
    match (failure.kind, failure.device, failure.backend.as_deref()) {
        ("host", ..) => "Out of host memory (RAM)".to_owned(),
        ("address-space", ..) => "Out of addresses".to_owned(),
        ("allocator", Some(device), Some("CUDA") | None) => {
            format!("Out of memory on device {device}")
        }
        ("allocator", Some(device), Some(backend)) => {
            format!("Out of memory on {backend} device {device}")
        }
        ("allocator", None, Some(backend)) if backend != "CUDA" => {
            format!("Out of memory on a device of {backend}")
        }
        _ => "Out of memory".to_owned(),
    }
}

impl Page {
    fn failure(&mut self, failure: &Failure) {
        let style = self.style;
        self.line("");
        let mut place = vec![format!("line {}", count(failure.line))];
        let who = by(failure.rank, failure.source.as_deref());
        if !who.is_empty() {
            place.insert(0, who);
        }
        if failure.times > 1 {
            place.push(format!("{} times in the log", count(failure.times)));
        }
        if let Some(version) = &failure.torch_version {
            place.push(format!("as PyTorch {version} words it"));
        }
        self.line(&format!("{} ({})", style.alarm(&title(failure)), place.join("; ")));
        if let Some(culprit) = &failure.culprit {
            self.named("line", &style.strong(&place_in(culprit)));
        } else if failure.frames.is_empty() {
            self.named("line", "unknown: no traceback stands before the message");
        } else {
            self.named("line", "none of the user's own code is in the traceback");
        }
        self.named(failure.verdict.word(), &style.strong(&failure.verdict_reason));
        let mut sure = match (failure.confidence, failure.verdict) {
            ("certain", Verdict::Unknown) => "yes".to_owned(),
            ("certain", _) => "yes: the numbers of the message decide it".to_owned(),
            (_, Verdict::Unknown) => "no: the message has too few numbers".to_owned(),
            _ => "not for certain: the numbers of the message allow it".to_owned(),
        };
        if failure.within_rounding {
            sure.push_str("; it turns on digits that were rounded away");
        }
        if let Some(settled_by) = &failure.settled_by {
            sure = format!("{sure}. What would settle it: {settled_by}");
        }
        self.named("sure?", &sure);
        for (i, advice) in failure.advice.iter().enumerate() {
            self.named(if i == 0 { "what to do" } else { "" }, advice);
        }
    }

    /// The numbers: with a glossary the first time.
    fn figures(&mut self, failure: &Failure, with_meaning: bool) {
        if failure.figures.is_empty() {
            return;
        }
        if with_meaning {
            self.line("");
            let rows = failure
                .figures
                .iter()
                .map(|f| vec![f.label.to_owned(), f.printed.clone(), f.meaning.clone()])
                .collect();
            self.table(&["the number", "", "what it is"], &[0, 2], rows);
            return;
        }
        let figures: Vec<String> =
            failure.figures.iter().map(|f| format!("{} {}", f.label, f.printed)).collect();
        self.named("numbers", &figures.join(", "));
    }

    fn traceback(&mut self, failure: &Failure) {
        let (frames, folded) = telling_frames(&failure.frames);
        if frames.len() < 2 {
            return; // the line says it all
        }
        for (i, frame) in frames.iter().take(SHOWN_FRAMES).enumerate() {
            self.named(if i == 0 { "traceback" } else { "" }, &place_in(frame));
        }
        let left = frames.len().saturating_sub(SHOWN_FRAMES) + folded;
        if left > 0 {
            let it = format!("({} more)", counted(left as u64, "frame"));
            self.named("", &self.style.faint(&it));
        }
    }

    /// The messages after the first ones, a row each.
    fn further(&mut self, failures: &[Failure]) {
        if failures.is_empty() {
            return;
        }
        self.heading("Further messages, in the order of the log");
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), size);
        let rows = failures
            .iter()
            .take(MOST_ROWS)
            .map(|f| {
                vec![
                    count(f.line),
                    by(f.rank, f.source.as_deref()),
                    f.device.map_or_else(|| "-".to_owned(), |device| device.to_string()),
                    bytes(f.requested_bytes),
                    bytes(f.device_free_bytes),
                    bytes(f.reserved_bytes),
                    f.verdict.to_string(),
                    count(f.times),
                ]
            })
            .collect();
        let header = ["line", "by", "device", "asked for", "free", "reserved", "verdict", "times"];
        self.table(&header, &[1, 6], rows);
        let left = failures.len().saturating_sub(MOST_ROWS);
        if left > 0 {
            self.text(&format!("  and {} more (--format json lists them)", count(left as u64)));
        }
    }

    fn statistics(&mut self, all: &[StatisticsReport]) {
        let Some(last) = all.last() else { return };
        let who = by(last.rank, last.source.as_deref());
        let device = last.device.map_or_else(String::new, |device| format!(" of device {device}"));
        let label = if who.is_empty() { String::new() } else { format!("{who}; ") };
        let which = if all.len() > 1 { "the last of them, " } else { "" };
        self.heading(&format!("Statistics{device} ({label}{which}line {})", count(last.line)));
        let verdict = match last.state {
            "healthy" => "healthy cache",
            "full" => "full device",
            _ => "fragmentation",
        };
        self.named(verdict, &self.style.strong(&last.reason));
        self.named("what to do", last.advice);
        self.line("");
        self.table(&["", "now", "at most", "what it is"], &[0, 3], rows(last));
        if last.error_bytes > 0 {
            self.text(&format!(
                "  A table's numbers are cut to whole units: each may be up to {} more.",
                size(last.error_bytes + 1)
            ));
        }
        if all.len() < 2 {
            return;
        }
        self.heading("All of them, in the order of the log");
        let rows = all
            .iter()
            .rev()
            .take(MOST_ROWS)
            .rev()
            .map(|s| {
                vec![
                    count(s.line),
                    by(s.rank, s.source.as_deref()),
                    s.device.map_or_else(|| "-".to_owned(), |device| device.to_string()),
                    size(s.peak_reserved_bytes),
                    size(s.peak_allocated_bytes),
                    percent(s.waste_ratio),
                    s.retries.map_or_else(|| "-".to_owned(), count),
                    s.ooms.map_or_else(|| "-".to_owned(), count),
                    s.state.to_owned(),
                ]
            })
            .collect();
        let header = [
            "line",
            "by",
            "device",
            "most reserved",
            "most allocated",
            "waste",
            "retries",
            "OOMs",
            "state",
        ];
        self.table(&header, &[1, 8], rows);
        if all.len() > MOST_ROWS {
            self.text(&format!("  the last {MOST_ROWS} of {}", count(all.len() as u64)));
        }
    }

    fn recording(&mut self, recording: &Recording) {
        self.heading(&format!(
            "To see which lines hold the memory, record a snapshot (PyTorch {})",
            recording.torch_version
        ));
        self.line("");
        for line in &recording.python {
            self.line(&format!("    {line}"));
        }
        self.line("");
        for note in &recording.notes {
            let wrapped = wrap(note, self.style.width.saturating_sub(2), "  ");
            self.line(&format!("  {wrapped}"));
        }
        self.line("");
        for line in &recording.shell {
            self.line(&format!("    {line}"));
        }
    }
}

fn rows(s: &StatisticsReport) -> Vec<Vec<String>> {
    let row = |name: &str, now: u64, most: Option<u64>, meaning: &str| {
        let most = most.map_or_else(String::new, size);
        vec![name.to_owned(), size(now), most, meaning.to_owned()]
    };
    let mut rows = vec![
        row(
            "reserved",
            s.reserved_bytes,
            Some(s.peak_reserved_bytes),
            "all that PyTorch's allocator holds of the device",
        ),
        row(
            "allocated",
            s.allocated_bytes,
            Some(s.peak_allocated_bytes),
            "blocks that tensors hold",
        ),
    ];
    if s.pending_bytes > 0 {
        rows.push(row(
            "pending",
            s.pending_bytes,
            None,
            "freed by the program, still in use on another stream",
        ));
    }
    rows.push(row("free", s.free_bytes, None, "in the cache, to be used again"));
    rows.push(row(
        "  stuck",
        s.inactive_split_bytes,
        None,
        "the part of it that shares segments with live blocks (\"non-releasable\"): empty_cache() cannot give \
         it back. Expandable segments are not counted",
    ));
    if let Some(bytes) = s.private_pool_bytes {
        rows.push(row(
            "private pools",
            bytes,
            None,
            "the part of reserved that CUDA graphs and MemPools hold",
        ));
    }
    rows
}

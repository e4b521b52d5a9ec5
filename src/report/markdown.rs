//! The same findings as Markdown, for a step summary, an issue or a chat.

use std::fmt::Write as _;

use super::obstacles::{in_the_way, pending};
use super::spaces;
use super::words::{
    missing, moment, of_remedies, place, place_in, provenance, remedies, telling_frames, when,
};
use super::{held, ranks};
use crate::analysis::{AnalyzeReport, DeviceReport, OomReport, Ranks, SnapshotReport};
use crate::memory::HeldByLine;
use crate::units::{count, counted, percent, plain, ratio, size};

/// The report as GitHub-flavoured Markdown.
pub fn markdown(report: &AnalyzeReport) -> String {
    let mut page = Markdown::default();
    if let Some(ranks) = &report.ranks {
        page.ranks(ranks);
    }
    for snapshot in &report.snapshots {
        page.snapshot(snapshot);
    }
    for file in &report.unreadable {
        page.line(&format!("- **unreadable**: {} {}", code(&file.path), text(&file.message)));
    }
    page.out
}

/// `text` with what Markdown would take for markup made plain.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '|' | '<' | '>' | '[' | ']' | '#') {
            out.push('\\');
        }
        out.push(if c == '\n' { ' ' } else { c });
    }
    out
}

/// `code` between backquotes that it cannot close.
pub(super) fn code(code: &str) -> String {
    format!("`{}`", plain(code).replace('`', "'").replace('|', "\\|"))
}

/// A page being written.
#[derive(Default)]
pub(super) struct Markdown {
    pub(super) out: String,
}

impl Markdown {
    pub(super) fn line(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    pub(super) fn paragraph(&mut self, line: &str) {
        self.line(line);
        self.line("");
    }

    /// A table; the columns after the first `left` ones are aligned right.
    pub(super) fn table(&mut self, header: &[&str], left: usize, rows: &[Vec<String>]) {
        self.line(&format!("| {} |", header.join(" | ")));
        let rule: Vec<&str> =
            (0..header.len()).map(|i| if i < left { "---" } else { "---:" }).collect();
        self.line(&format!("| {} |", rule.join(" | ")));
        for row in rows {
            self.line(&format!("| {} |", row.join(" | ")));
        }
        self.line("");
    }

    fn ranks(&mut self, of: &Ranks) {
        let (directory, ending) =
            (ranks::common_directory(&of.rows), ranks::common_ending(&of.rows));
        self.paragraph(&format!(
            "## {}, the worst first",
            counted(of.rows.len() as u64, "snapshot")
        ));
        let rows: Vec<Vec<String>> = of
            .rows
            .iter()
            .map(|rank| {
                let mut cells = ranks::cells(rank, &directory, &ending);
                if let Some(path) = cells.first_mut() {
                    *path = code(path);
                }
                cells
            })
            .collect();
        self.table(&ranks::HEADER, 1, &rows);
        self.paragraph(&text(&of.summary));
    }

    fn snapshot(&mut self, snapshot: &SnapshotReport) {
        self.paragraph(&format!("## {}", code(&snapshot.path)));
        self.paragraph(&text(&provenance(snapshot)));
        for device in &snapshot.devices {
            self.device(device);
        }
        if let Some(host) = &snapshot.host {
            let segments = host.segments;
            self.paragraph(&format!(
                "Pinned host memory: {} in {}",
                size(segments.bytes),
                counted(segments.count, "segment")
            ));
        }
        for warning in &snapshot.warnings {
            self.line(&format!("- {}: {}", code(warning.code.word()), text(&warning.message)));
        }
        if !snapshot.warnings.is_empty() {
            self.line("");
        }
    }

    fn device(&mut self, device: &DeviceReport) {
        if let Some(oom) = device.ooms.last() {
            self.oom(oom, device);
        }
        if let Some(request) = &device.request {
            let asked = size(request.asked_bytes);
            let outcome = &request.outcome;
            self.line(&format!("### {asked} more on device {}", device.device));
            self.line(&format!("- **{}**: {}", outcome.verdict, text(&outcome.verdict_reason)));
            for assumed in &request.assumed {
                self.line(&format!("- assumed: {}", text(assumed)));
            }
            self.line("");
        }
        let memory = &device.memory;
        let free = &memory.fragmentation;
        self.paragraph(&format!("### Memory of device {} at the snapshot", device.device));
        let rows: Vec<Vec<String>> = [
            ("reserved", memory.reserved_bytes),
            ("allocated", memory.allocated_bytes),
            ("pending free", memory.blocks.active_pending_free.bytes),
            ("free", memory.blocks.inactive.bytes),
            ("free: releasable by empty_cache()", free.releasable_bytes),
            ("free: stranded", free.stranded_bytes),
            ("largest free block", free.largest_free_block_bytes),
            ("peak allocated", device.peak.allocated_bytes),
            ("peak reserved", device.peak.reserved_bytes),
        ]
        .into_iter()
        .map(|(name, bytes)| {
            vec![text(name), size(bytes), percent(ratio(bytes, memory.reserved_bytes))]
        })
        .collect();
        self.table(&["", "bytes", "of reserved"], 1, &rows);
        if memory.pools.len() > 1 {
            let (header, rows) = spaces::pools(memory);
            self.table(&header, 1, &rows);
        }
        if memory.streams.len() > 1 {
            let (header, rows) = spaces::streams(memory);
            self.table(&header, 1, &rows);
        }
        self.lines(&device.top_lines);
        self.held(device);
    }

    /// Lines of code with what they hold.
    fn lines(&mut self, lines: &[HeldByLine]) {
        if lines.is_empty() {
            return;
        }
        let row = |held: &HeldByLine| {
            let line = match &held.frame {
                Some(frame) => code(&place_in(frame)),
                None => "(no line of the user's code)".to_owned(),
            };
            let doing = held.operation.as_deref().map(code).unwrap_or_default();
            vec![line, doing, size(held.bytes), percent(held.share_ratio), count(held.blocks)]
        };
        let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
        self.table(&["allocated by", "doing", "bytes", "share", "blocks"], 2, &rows);
    }

    fn held(&mut self, device: &DeviceReport) {
        let Some((held, moment)) = held::telling(device) else { return };
        self.paragraph(&format!("### {}", text(&held::heading(held, moment))));
        let rows: Vec<Vec<String>> = held::parts(held)
            .into_iter()
            .map(|part| {
                let share = percent(part.held.share_ratio);
                let name = match part.note {
                    "" => part.name.to_owned(),
                    note => format!("{} ({note})", part.name),
                };
                vec![part.group.to_owned(), name, size(part.held.bytes), share]
            })
            .collect();
        if !rows.is_empty() {
            self.table(&["", "", "bytes", "share"], 2, &rows);
        }
        self.lines(held::lines(held, device));
        for sentence in [held::kept(held), held::growth(&device.leaks)].into_iter().flatten() {
            self.line(&format!("- {}", text(&sentence)));
        }
        self.line("");
    }

    fn oom(&mut self, oom: &OomReport, device: &DeviceReport) {
        self.paragraph(&format!("### Out of memory on device {}", device.device));
        let line = match &oom.culprit {
            Some(frame) => code(&place_in(frame)),
            None => "no line of the user's code is on its stack".to_owned(),
        };
        self.paragraph(&format!(
            "A request of **{}** failed at {line} ({}).",
            size(oom.requested_bytes),
            when(oom, device)
        ));
        self.line(&format!("- **{}**: {}", oom.verdict, text(&oom.verdict_reason)));
        self.line(&format!("- {}", text(&missing(oom))));
        self.line(&format!("- {}", text(&moment(oom))));
        for cause in oom.causes.iter().filter(|cause| cause.kind != oom.verdict) {
            self.line(&format!("- {} {}", size(cause.bytes), text(&cause.note)));
        }
        for it in pending(oom) {
            self.line(&format!("- pending: {}", text(&it)));
        }
        for it in in_the_way(oom) {
            self.line(&format!("- in the way: {}", text(&it)));
        }
        for remedy in remedies(oom).into_iter().chain(of_remedies(oom)) {
            self.line(&format!("- {}", text(&remedy)));
        }
        self.line("");
        let (frames, folded) = telling_frames(&oom.frames);
        if frames.is_empty() {
            return;
        }
        let _ = writeln!(
            self.out,
            "<details><summary>stack ({} shown, {folded} folded)</summary>\n\n```",
            frames.len()
        );
        for frame in frames {
            self.line(&format!("{} {}", place(frame), frame.name).replace("```", "'''"));
        }
        self.paragraph("```\n\n</details>");
    }
}

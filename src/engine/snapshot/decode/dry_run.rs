//! Reading `oomscope.dry_run`, which `oomscope dry-run` writes. As untrusted as the rest of the file.

use super::super::{
    DryRun, EXIT_CODE, OTHER_BRANCHES, ProcessEnd, ProcessError, ReadUsage, ReadValue, RecordedFailure, TextLength,
    UnsizedWork, ValueRead, Workspace,
};
use super::Decoder;
use super::recorder_info::MAX_ITEMS;
use crate::snapshot::pickle::Value;

/// The stub records no more workspaces than this.
const MAX_WORKSPACES: usize = 1 << 18;

impl Decoder {
    /// `None` if it is not a dict that oomscope wrote.
    pub(super) fn read_dry_run(&self, value: Value) -> Option<DryRun> {
        let text = |dict, key| self.short_text(dict, key);
        // Other releases of oomscope may write other keys: a missing number counts as 0, a missing list as empty.
        let number = |dict, key| self.number(dict, key).unwrap_or(0);
        let unsized_by = self.find(value, "unsized")?;
        let items = |key| self.items_of(value, key);
        let reads = items("reads").into_iter().take(MAX_ITEMS).map(|item| ValueRead {
            operators: text(item, "operators"),
            count: number(item, "count"),
            bytes: number(item, "bytes"),
            first_us: number(item, "first_us"),
            stack: self.stack(item, "frames"),
            value: ReadValue::from_word(&text(item, "value")).unwrap_or_default(),
            usage: ReadUsage::from_word(&text(item, "usage")).unwrap_or_default(),
            decided_at: self.stack(item, "decided_at"),
        });
        let workspaces = items("workspaces").into_iter().take(MAX_WORKSPACES).filter_map(|row| {
            let row = self.numbers(row, 6);
            let [time_us, device, stream, bytes, needed, ref rest @ ..] = *row.as_slice() else {
                return None; // another release's row
            };
            let minimum_bytes = rest.first().copied().unwrap_or(0);
            Some(Workspace { time_us, device, stream, bytes, is_required: needed != 0, minimum_bytes })
        });
        let failure = |item: Value| RecordedFailure { bytes: number(item, "bytes"), stack: self.stack(item, "frames") };
        let is_true = |key| self.is_true(value, key);
        Some(DryRun {
            gpu: text(value, "gpu"),
            capability: text(value, "capability"),
            total_bytes: number(value, "total_bytes"),
            context_bytes: number(value, "context_bytes"),
            communicators: number(value, "communicators"),
            reads: reads.collect(),
            omitted_reads: number(value, "reads_untold"),
            known_reads: number(value, "reads_known"),
            unsized_work: UnsizedWork {
                cudnn: number(unsized_by, "cudnn"),
                cusolver: number(unsized_by, "cusolver"),
                cufft: number(unsized_by, "cufft"),
                cusparse: number(unsized_by, "cusparse"),
                attention: number(unsized_by, "attention"),
                timings: number(unsized_by, "timings"),
            },
            workspaces: workspaces.collect(),
            missing: self.find(value, "missing").map(|it| self.read_texts(it)).unwrap_or_default(),
            unfilled_bytes: number(value, "unfilled_bytes"),
            is_stopped: is_true("stopped"),
            is_alone: is_true("alone"),
            end: self.find(value, "end").map(|end| self.read_end(end)).unwrap_or_default(),
            failures: items("failures").into_iter().take(MAX_ITEMS).map(failure).collect(),
            failure_count: number(value, "failure_count"),
            absent_device: self.number(value, "absent_device"),
            generated: TextLength::from_word(&text(value, "generated")),
            other_branches_bytes: text(value, "other_branches")
                .strip_prefix(OTHER_BRANCHES)
                .and_then(|digits| digits.parse().ok()),
            free_memory_query: self.stack(value, "free_memory_query"),
            serving: self.find(value, "serving").and_then(|it| serde_json::from_str(self.as_text(it)?).ok()),
        })
    }

    fn read_end(&self, end: Value) -> ProcessEnd {
        let text = |key| self.short_text(end, key);
        let code = self.number(end, "code");
        let stack = self.stack(end, "frames");
        // The command writes the digits if the process ended with another code than it announced.
        let final_code = text("final").strip_prefix(EXIT_CODE).and_then(|digits| digits.parse().ok());
        match (text("kind").as_str(), final_code.or(code)) {
            ("finished", Some(code)) if code != 0 => ProcessEnd::Exit(code, None),
            ("finished" | "ready", _) | ("exit", Some(0)) => ProcessEnd::Finished,
            ("exit", Some(code)) => ProcessEnd::Exit(code, stack),
            ("signal", Some(number)) => ProcessEnd::Signal(number),
            ("stopped", _) => ProcessEnd::Stopped,
            ("exception", _) => {
                let read = self.find(end, "read");
                let after_read = read.map(|read| {
                    (self.short_text(read, "operator"), self.stack(read, "frames"), self.short_text(read, "value"))
                });
                ProcessEnd::Error(ProcessError { name: text("error"), message: text("message"), stack, after_read })
            }
            _ => ProcessEnd::Running,
        }
    }
}

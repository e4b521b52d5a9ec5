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
        // Other releases of oomscope may write other keys: a missing number counts as 0, a missing list as empty.
        let unsized_by = self.find(value, "unsized")?;
        let reads = self.items_of(value, "reads").into_iter().take(MAX_ITEMS).map(|item| ValueRead {
            operators: self.short_text(item, "operators"),
            count: self.number_or_0(item, "count"),
            bytes: self.number_or_0(item, "bytes"),
            first_us: self.number_or_0(item, "first_us"),
            stack: self.stack(item, "frames"),
            value: ReadValue::from_word(&self.short_text(item, "value")).unwrap_or_default(),
            usage: ReadUsage::from_word(&self.short_text(item, "usage")).unwrap_or_default(),
            decided_at: self.stack(item, "decided_at"),
        });
        let workspaces = self.items_of(value, "workspaces").into_iter().take(MAX_WORKSPACES).filter_map(|row| {
            let row = self.numbers(row, 6);
            let [time_us, device, stream, bytes, needed, ref rest @ ..] = *row.as_slice() else {
                return None; // another release's row
            };
            let minimum_bytes = rest.first().copied().unwrap_or(0);
            Some(Workspace { time_us, device, stream, bytes, is_required: needed != 0, minimum_bytes })
        });
        let failures = self
            .items_of(value, "failures")
            .into_iter()
            .take(MAX_ITEMS)
            .map(|item| RecordedFailure { bytes: self.number_or_0(item, "bytes"), stack: self.stack(item, "frames") });
        Some(DryRun {
            gpu: self.short_text(value, "gpu"),
            capability: self.short_text(value, "capability"),
            total_bytes: self.number_or_0(value, "total_bytes"),
            context_bytes: self.number_or_0(value, "context_bytes"),
            communicators: self.number_or_0(value, "communicators"),
            reads: reads.collect(),
            omitted_reads: self.number_or_0(value, "reads_untold"),
            known_reads: self.number_or_0(value, "reads_known"),
            unsized_work: UnsizedWork {
                cudnn: self.number_or_0(unsized_by, "cudnn"),
                cusolver: self.number_or_0(unsized_by, "cusolver"),
                cufft: self.number_or_0(unsized_by, "cufft"),
                cusparse: self.number_or_0(unsized_by, "cusparse"),
                attention: self.number_or_0(unsized_by, "attention"),
                timings: self.number_or_0(unsized_by, "timings"),
            },
            workspaces: workspaces.collect(),
            missing: self.find(value, "missing").map(|it| self.read_texts(it)).unwrap_or_default(),
            unfilled_bytes: self.number_or_0(value, "unfilled_bytes"),
            is_stopped: self.is_true(value, "stopped"),
            is_alone: self.is_true(value, "alone"),
            end: self.find(value, "end").map(|end| self.read_end(end)).unwrap_or_default(),
            failures: failures.collect(),
            failure_count: self.number_or_0(value, "failure_count"),
            absent_device: self.number(value, "absent_device"),
            generated: TextLength::from_word(&self.short_text(value, "generated")),
            other_branches_bytes: self.number_after(OTHER_BRANCHES, value, "other_branches"),
            free_memory_query: self.stack(value, "free_memory_query"),
            serving: self.find(value, "serving").and_then(|it| serde_json::from_str(self.as_text(it)?).ok()),
        })
    }

    /// The number after `prefix` in the text of `key`.
    fn number_after(&self, prefix: &str, dict: Value, key: &str) -> Option<u64> {
        self.short_text(dict, key).strip_prefix(prefix)?.parse().ok()
    }

    fn read_end(&self, end: Value) -> ProcessEnd {
        let code = self.number(end, "code");
        let stack = self.stack(end, "frames");
        // The command writes the digits if the process ended with another code than it announced.
        let final_code = self.number_after(EXIT_CODE, end, "final");
        match (self.short_text(end, "kind").as_str(), final_code.or(code)) {
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
                let [name, message] = ["error", "message"].map(|key| self.short_text(end, key));
                ProcessEnd::Error(ProcessError { name, message, stack, after_read })
            }
            _ => ProcessEnd::Running,
        }
    }
}

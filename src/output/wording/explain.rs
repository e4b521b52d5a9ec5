//! The summary of a log: the first lines of its page.

use super::Summary;
use super::place::frame_label;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::base::units::{counted, size};
use crate::explain::{ExplainReport, ExplainedFailure};
use crate::output::document::{Text, alarm, strong};
use crate::stacks::frames::FrameReport;

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
    Summary {
        action: failure.advice.first().cloned(),
        copy: failure.copy.clone(),
        ..Summary::from_answer(format!("{}; {}", failure.headline(device.as_deref()).raw(), failure.reason()))
    }
}

impl ExplainedFailure {
    /// `out of memory on GPU 0: train.py:16 block requested 64 MiB`
    pub(crate) fn headline(&self, devices: Option<&str>) -> Text {
        let start = alarm(self.describe(devices));
        let requested = self.requested_bytes.filter(|_| self.system.is_none());
        match (self.line(), requested) {
            (Some(line), Some(bytes)) => {
                start.and(": ").and(frame_label(line)).and(" requested ").and(strong(size(bytes)))
            }
            (Some(line), None) => start.and(": ").and(frame_label(line)),
            (None, Some(bytes)) => start.and(": ").and(strong(size(bytes))).and(" requested"),
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
pub(crate) fn describe_host_memory(failure: &ExplainedFailure) -> Option<String> {
    let (reserved, capacity) = failure.reserved_bytes.zip(failure.capacity_bytes).filter(|_| failure.exceeds_device)?;
    let [reserved, capacity] = [reserved, capacity].map(size);
    Some(format!("{reserved} reserved on a device of {capacity}: the rest is slow host memory that Windows added"))
}

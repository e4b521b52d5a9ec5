//! The verdict of a dry run, as a part of the check.

use serde::Serialize;

use super::allow_missing::AllowMissing;
use crate::analysis::{DryRunReason, DryRunVerdict, JobVerdict};
use crate::stacks::frames::{CodeLocation, FrameReport};

/// A dry run of a job, and whether its verdict passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckedJob {
    /// Name of the assumed GPU.
    pub gpu: String,
    /// The command and its arguments, for a shell.
    pub command: String,
    /// Whether the job would fit. Only `would-fit` passes, unless `--allow-missing` names the verdict.
    pub verdict: DryRunVerdict,
    /// Why, in a sentence.
    pub reason: String,
    /// Whether the verdict passes.
    pub passed: bool,
    /// The line that the reason names; null if it names none.
    pub line: Option<FrameReport>,
    /// Path of its file in the repository; null if it is not there.
    pub source: Option<String>,
}

impl CheckedJob {
    /// Judges `verdict`. Without one, no process left a snapshot, and `no_verdict` says why.
    pub fn new(
        (gpu, command): (String, String),
        verdict: Option<&JobVerdict>,
        no_verdict: impl FnOnce() -> String,
        allow_missing: &AllowMissing,
        source: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let line = verdict.and_then(|job| location(&job.reason)?.frame.clone());
        let (verdict, reason) = match verdict {
            Some(job) => (job.verdict, job.reason.to_string()),
            None => (DryRunVerdict::NoVerdict, no_verdict()),
        };
        let passed = verdict == DryRunVerdict::WouldFit || allow_missing.allows_verdict(verdict);
        let source = line.as_ref().and_then(|line| source(&line.file));
        Self { gpu, command, verdict, reason, passed, line, source }
    }
}

/// The line of code that a reason is about.
fn location(reason: &DryRunReason) -> Option<&CodeLocation> {
    use DryRunReason as Reason;
    match reason {
        Reason::Failed(failed) | Reason::Retried(failed) | Reason::FailedAtMost(failed, _) => Some(&failed.location),
        Reason::Value(read) => Some(&read.location),
        Reason::ExitCode(_, location) => location.as_ref(),
        Reason::Error(error) => Some(&error.location),
        Reason::Served
        | Reason::NotStarted(_)
        | Reason::ServedAtBest
        | Reason::UnknownMemory
        | Reason::OmittedReads
        | Reason::Stopped
        | Reason::StillRunning
        | Reason::EndNotRecorded
        | Reason::Shared(_)
        | Reason::Lost(_)
        | Reason::Signal(_) => None,
    }
}

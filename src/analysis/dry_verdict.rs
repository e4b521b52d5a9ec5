//! The verdict of a dry run: from facts to one word and its reason, in this place only.

use super::dry_reads::ReadReport;
use crate::base::warning::words;
use crate::snapshot::ReadValue;
use crate::stacks::frames::CodeLocation;

words! {
    /// Whether the job would fit on the assumed GPU. The worst verdict of its processes is that of the job.
    pub enum DryRunVerdict {
        /// The program ran to its end, every request was served, and no value of the GPU affects them
        WouldFit = "would-fit",
        /// A value of the GPU, or memory that only a GPU knows, decides
        MayFit = "may-fit",
        /// The recording does not show the end of the program
        NoVerdict = "no-verdict",
        /// The program ended with an error of its own
        DidNotFinish = "did-not-finish",
        /// A request failed, and the program did not get past it
        WouldNotFit = "would-not-fit",
    }
}

/// The reason for a [`DryRunVerdict`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRunReason {
    /// Every request was served.
    Served,
    /// The last request that failed; the program went on, and the same line was served later.
    Retried(FailedRequest),
    /// A request that failed.
    Failed(FailedRequest),
    /// A serving engine did not start, for lack of memory. In its own words.
    NotStarted(String),
    /// A request fails under some placements of memory, or with the workspaces of libraries.
    ServedAtBest,
    /// A library took memory of a size that is not known, or an entry point was missing.
    UnknownMemory,
    /// A value that was read decides.
    Value(Box<ReadReport>),
    /// A request fails if this result, whose size is not known, has its maximum size.
    FailedAtMost(FailedRequest, Box<ReadReport>),
    /// Some reads of values are not in the ledger.
    OmittedReads,
    /// The recorder stopped the program, which kept reading values.
    Stopped,
    /// The snapshot was written before the program ended.
    StillRunning,
    /// An older release made the recording, and did not record how the program ended.
    EndNotRecorded,
    /// A signal ended the program.
    Signal(u64),
    /// The program ended with this exit code, at a line if it is known.
    ExitCode(u64, Option<CodeLocation>),
    /// An error ended the program.
    Error(Box<ProgramError>),
    /// Several processes need more of a GPU than it has.
    Shared(Box<SharedDevice>),
    /// Number of processes that left no recording of their end.
    Lost(usize),
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRequest {
    /// The line.
    pub location: CodeLocation,
    /// Its size.
    pub bytes: u64,
    /// How the program went on, if each line with a failed request was served later.
    pub retry: Option<Retry>,
}

/// A program after its last failed request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retry {
    /// Peak of allocated bytes after the failure.
    pub allocated_bytes: u64,
    /// Peak of reserved bytes after the failure.
    pub reserved_bytes: u64,
}

/// An error that ended a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramError {
    /// The type of the exception.
    pub name: String,
    /// The first line of its message.
    pub message: String,
    /// The line that raised it.
    pub location: CodeLocation,
    /// The read before it in the same function.
    pub after_read: Option<ReadBefore>,
    /// A device that the program used and that does not exist.
    pub absent_device: Option<u64>,
}

/// A read of a value before an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadBefore {
    /// The operator that read.
    pub operator: String,
    /// Its line.
    pub location: CodeLocation,
    /// The value that the program got, such as `False`.
    pub value: String,
}

/// Processes that need more of a GPU than it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedDevice {
    /// Device number.
    pub device: u64,
    /// Memory of the device.
    pub total_bytes: u64,
    /// The name of each process with its bytes, those of the CUDA context included.
    pub processes: Vec<(String, u64)>,
    /// The processes hold these bytes at the same time; otherwise they are peaks of which the times are not known.
    pub is_simultaneous: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// With this exit code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

/// How surely every request of a process is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Served {
    /// A request fails under some placements of memory, or with the workspaces of libraries.
    #[default]
    AtBest,
    /// Under all placements and with the workspaces.
    Always,
    /// With so much headroom that drawn and random values do not matter.
    Amply,
}

/// The facts about one process.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct ProcessFacts<'f> {
    /// How it ended, if not at its last line.
    pub(super) end: Option<DryRunReason>,
    /// The last failed request.
    pub(super) failed: Option<FailedRequest>,
    /// Every line with a failed request was served later.
    pub(super) has_recovered: bool,
    /// The request fails even if the results of assumed maximum size are empty.
    pub(super) fails_at_least: bool,
    /// Memory of unknown size, other than workspaces with an estimate.
    pub(super) is_memory_unknown: bool,
    /// How surely every request is served.
    pub(super) served: Served,
    pub(super) reads: &'f [ReadReport],
    pub(super) omitted_reads: u64,
    /// The other branches of all values have run, too, and need no more memory.
    pub(super) are_branches_run: bool,
}

/// The verdict on one process.
pub(super) fn decide(facts: ProcessFacts<'_>) -> (DryRunVerdict, DryRunReason) {
    use DryRunReason as Reason;
    use DryRunVerdict::{DidNotFinish, MayFit, NoVerdict, WouldFit, WouldNotFit};
    let has_finished = facts.end.is_none();
    let retried = match facts.failed {
        Some(failed) if !(has_finished && facts.has_recovered) => {
            let at_most = facts.reads.iter().find(|read| read.value == ReadValue::Maximum);
            return match at_most.filter(|_| !facts.fails_at_least) {
                Some(read) => (MayFit, Reason::FailedAtMost(failed, Box::new(read.clone()))),
                None => (WouldNotFit, Reason::Failed(failed)),
            };
        }
        failed => failed,
    };
    match facts.end {
        Some(end @ Reason::NotStarted(_)) => return (WouldNotFit, end),
        Some(end @ (Reason::Error(_) | Reason::ExitCode(..))) => return (DidNotFinish, end),
        Some(Reason::Stopped) => return (MayFit, Reason::Stopped),
        Some(end) => return (NoVerdict, end),
        None => {}
    }
    let value = facts.reads.iter().find(|read| {
        let is_substitute = read.value != ReadValue::Zero;
        let has_run = facts.are_branches_run && read.is_branch();
        read.is_deciding() && !has_run && !(is_substitute && facts.served == Served::Amply)
    });
    let value = value.map(|read| Reason::Value(Box::new(read.clone())));
    let doubt = value
        .or_else(|| facts.is_memory_unknown.then_some(Reason::UnknownMemory))
        .or_else(|| (facts.omitted_reads > 0).then_some(Reason::OmittedReads))
        .or_else(|| (facts.served == Served::AtBest).then_some(Reason::ServedAtBest));
    match (doubt, retried) {
        (Some(doubt), _) => (MayFit, doubt),
        (None, Some(failed)) => (WouldFit, Reason::Retried(failed)),
        (None, None) => (WouldFit, Reason::Served),
    }
}

/// The verdict on a job: the worst of its processes, unless the command itself ended otherwise. The end of a command
/// whose serving engine was ready says nothing about memory: `command` is `None`.
pub(super) fn decide_job(
    processes: impl Iterator<Item = (DryRunVerdict, DryRunReason)>,
    command: Option<ProgramEnd>,
) -> Option<(DryRunVerdict, DryRunReason)> {
    let worst = processes.reduce(|worst, other| if other.0 > worst.0 { other } else { worst })?;
    let ended = match command {
        None | Some(ProgramEnd::Code(0)) => return Some(worst),
        Some(ProgramEnd::Code(code)) => (DryRunVerdict::DidNotFinish, DryRunReason::ExitCode(code.into(), None)),
        Some(ProgramEnd::Signal(signal)) => {
            (DryRunVerdict::NoVerdict, DryRunReason::Signal(signal.unsigned_abs().into()))
        }
    };
    // A process that failed or did not finish says more than the exit code.
    Some(if worst.0 >= ended.0 || matches!(worst.1, DryRunReason::FailedAtMost(..)) { worst } else { ended })
}

impl DryRunVerdict {
    /// `would-fit` as two words, for sentences.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::WouldFit => "would fit",
            Self::MayFit => "may fit",
            Self::NoVerdict => "no verdict",
            Self::DidNotFinish => "did not finish",
            Self::WouldNotFit => "would not fit",
        }
    }

    /// The exit code of `oomscope dry-run --exit-code verdict`.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::WouldFit => 0,
            Self::WouldNotFit => 1,
            Self::NoVerdict | Self::DidNotFinish => 2,
            Self::MayFit => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DryRunReason as Reason;
    use super::DryRunVerdict::{DidNotFinish, MayFit, NoVerdict, WouldFit, WouldNotFit};
    use super::*;
    use crate::snapshot::ReadUsage;

    fn well() -> ProcessFacts<'static> {
        ProcessFacts { served: Served::Always, ..ProcessFacts::default() }
    }

    fn ample() -> ProcessFacts<'static> {
        ProcessFacts { served: Served::Amply, ..well() }
    }

    fn error() -> Reason {
        Reason::Error(Box::default())
    }

    fn failed() -> FailedRequest {
        FailedRequest { location: CodeLocation::default(), bytes: 1, retry: None }
    }

    #[test]
    #[expect(clippy::large_stack_arrays, reason = "the cases borrow from each other's reads")]
    fn facts_lead_to_verdicts() {
        let item = ReadReport { usage: ReadUsage::Report, ..ReadReport::default() };
        let branch = ReadReport { usage: ReadUsage::Branch, ..ReadReport::default() };
        let mask = ReadReport { decides_a_size: true, ..ReadReport::default() };
        let drawn = ReadReport { value: ReadValue::Assumed, ..branch.clone() };
        let most = ReadReport { value: ReadValue::Maximum, usage: ReadUsage::Report, ..mask.clone() };
        let cases = [
            (well(), WouldFit),
            (ProcessFacts { reads: std::slice::from_ref(&item), ..well() }, WouldFit),
            (ProcessFacts { reads: &[item.clone(), branch.clone()], ..well() }, MayFit),
            (ProcessFacts { reads: &[item.clone(), branch.clone()], are_branches_run: true, ..well() }, WouldFit),
            (ProcessFacts { reads: std::slice::from_ref(&mask), are_branches_run: true, ..well() }, MayFit),
            (ProcessFacts { reads: std::slice::from_ref(&mask), ..ample() }, MayFit),
            (ProcessFacts { reads: std::slice::from_ref(&drawn), ..well() }, MayFit),
            (ProcessFacts { reads: std::slice::from_ref(&drawn), ..ample() }, WouldFit),
            (ProcessFacts { reads: &[drawn.clone(), branch.clone()], ..ample() }, MayFit),
            (ProcessFacts { reads: std::slice::from_ref(&most), ..well() }, WouldFit),
            (ProcessFacts { reads: std::slice::from_ref(&most), served: Served::AtBest, ..well() }, MayFit),
            (ProcessFacts { reads: &[ReadReport { usage: ReadUsage::Branch, ..most.clone() }], ..well() }, MayFit),
            (ProcessFacts { reads: std::slice::from_ref(&most), failed: Some(failed()), ..well() }, MayFit),
            (
                ProcessFacts {
                    reads: std::slice::from_ref(&most),
                    failed: Some(failed()),
                    fails_at_least: true,
                    ..well()
                },
                WouldNotFit,
            ),
            (ProcessFacts { omitted_reads: 1, ..well() }, MayFit),
            (ProcessFacts { is_memory_unknown: true, ..well() }, MayFit),
            (ProcessFacts { served: Served::AtBest, ..well() }, MayFit),
            (ProcessFacts { failed: Some(failed()), ..well() }, WouldNotFit),
            (ProcessFacts { failed: Some(failed()), has_recovered: true, ..well() }, WouldFit),
            (ProcessFacts { failed: Some(failed()), has_recovered: true, reads: &[branch], ..well() }, MayFit),
            (ProcessFacts { failed: Some(failed()), has_recovered: true, end: Some(error()), ..well() }, WouldNotFit),
            (ProcessFacts { failed: Some(failed()), end: Some(Reason::Signal(9)), ..well() }, WouldNotFit),
            (ProcessFacts { end: Some(error()), ..well() }, DidNotFinish),
            (ProcessFacts { end: Some(Reason::ExitCode(3, None)), ..well() }, DidNotFinish),
            (ProcessFacts { end: Some(Reason::Signal(15)), ..well() }, NoVerdict),
            (ProcessFacts { end: Some(Reason::StillRunning), ..well() }, NoVerdict),
            (ProcessFacts { end: Some(Reason::Stopped), ..well() }, MayFit),
        ];
        for (number, (facts, expected)) in cases.into_iter().enumerate() {
            assert_eq!(decide(facts).0, expected, "case {number}");
        }
        let refused = ProcessFacts { end: Some(Reason::NotStarted(String::new())), ..well() };
        assert_eq!(decide(refused).0, WouldNotFit);
    }

    #[test]
    fn the_worst_process_decides_and_then_the_command() {
        let [success, failure, other] = [0, 1, 3].map(|code| Some(ProgramEnd::Code(code)));
        let signal = Some(ProgramEnd::Signal(9));
        for (verdicts, command, expected) in [
            (&[][..], success, None),
            (&[WouldFit, WouldFit], success, Some(WouldFit)),
            (&[WouldFit, WouldFit], None, Some(WouldFit)),
            (&[WouldFit, MayFit], success, Some(MayFit)),
            (&[NoVerdict, WouldNotFit], failure, Some(WouldNotFit)),
            (&[NoVerdict, DidNotFinish, WouldFit], failure, Some(DidNotFinish)),
            (&[WouldFit], other, Some(DidNotFinish)),
            (&[WouldFit], signal, Some(NoVerdict)),
            (&[DidNotFinish], signal, Some(DidNotFinish)),
        ] {
            let processes = verdicts.iter().map(|verdict| (*verdict, Reason::Served));
            let decided = decide_job(processes, command).map(|(verdict, _)| verdict);
            assert_eq!(decided, expected, "{verdicts:?} {command:?}");
        }
    }
}

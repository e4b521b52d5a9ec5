//! Information that `oomscope dry-run` stores in a snapshot: the assumed GPU, and the unknowns of the run.

use super::serving::Serving;
use crate::base::ids::StackId;
use crate::base::units::MIB;
use crate::base::warning::words;

/// Precedes the exit code in the snapshot of a dry run: three digits, or question marks if the process ended as
/// announced.
pub const EXIT_CODE: &str = "oomscope exit code: ";

/// Precedes the peak of reserved bytes, in 16 digits, of another run that took the other branches of unknown values and
/// fits as well; question marks if there is none.
pub const OTHER_BRANCHES: &str = "oomscope other branches: ";

/// A run on the stub of CUDA.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DryRun {
    /// The driver's name for the assumed GPU.
    pub gpu: String,
    /// Its compute capability, such as `9.0`.
    pub capability: String,
    /// Its memory.
    pub total_bytes: u64,
    /// The part of it that the CUDA context is assumed to take.
    pub context_bytes: u64,
    /// NCCL's communicators.
    pub communicators: u64,
    /// Reads of device values that the dry run did not compute, in order of the first read.
    pub reads: Vec<ValueRead>,
    /// The peak of reserved bytes of another run, which took the other branches of these values and fits as well.
    pub other_branches_bytes: Option<u64>,
    /// Number of reads of values that were computed on the host.
    pub known_reads: u64,
    /// Number of reads that are missing in `reads`.
    pub omitted_reads: u64,
    /// Work whose memory only a closed library or a GPU knows.
    pub unsized_work: UnsizedWork,
    /// Possible workspaces of libraries, in order of execution.
    pub workspaces: Vec<Workspace>,
    /// Entry points that the program looked up and that the stub lacks.
    pub missing: Vec<String>,
    /// Bytes of large tensors in host memory whose initialization was skipped.
    pub unfilled_bytes: u64,
    /// The run was stopped, because the program kept reading values without progress.
    pub is_stopped: bool,
    /// The run was one rank of a job, without the others.
    pub is_alone: bool,
    /// How the process ended, as far as it knew when it wrote the snapshot.
    pub end: ProcessEnd,
    /// Its first failed requests, also those after the program switched the history off.
    pub failures: Vec<RecordedFailure>,
    /// Number of all of them.
    pub failure_count: u64,
    /// The first device that the program used and that does not exist.
    pub absent_device: Option<u64>,
    /// The assumed length of the texts that the program generated, if it did.
    pub generated: Option<TextLength>,
    /// The first stack of the program that asked how much memory is free.
    pub free_memory_query: Option<StackId>,
    /// The serving engine that the program started.
    pub serving: Option<Serving>,
}

/// NCCL's memory for a communicator: 558 MiB for one of a single rank on an H200 (NCCL 2.28.9, tests/gpu), 544 to 688 MB in
/// public measurements of A100s, and up to 1.8 GiB with eight ranks on H100s. An estimate, and rather low.
const COMMUNICATOR_BYTES: u64 = 560 * MIB;

impl DryRun {
    /// An estimate of NCCL's memory.
    pub fn nccl_bytes(&self) -> u64 {
        self.communicators.saturating_mul(COMMUNICATOR_BYTES)
    }
}

words! {
    /// The length of generated texts, which depends on tokens that are not known: `--generate`.
    pub enum TextLength {
        /// No text ends early
        Maximum = "max",
        /// Each text ends after one token
        Minimum = "min",
    }
}

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Not known: older releases did not record it.
    #[default]
    Unrecorded,
    /// Not known: the snapshot was written before the end.
    Running,
    /// At the last line of its program.
    Finished,
    /// With an exit code, at the line that gave it.
    Exit(u64, Option<StackId>),
    /// With an error that nothing caught.
    Error(ProcessError),
    /// By a signal.
    Signal(u64),
    /// Stopped by the recorder, because it kept reading values without progress.
    Stopped,
}

/// An error that ended a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessError {
    /// The type of the exception.
    pub name: String,
    /// The first line of its message.
    pub message: String,
    /// The Python stack that raised it.
    pub stack: Option<StackId>,
    /// The read before it in the same function: its operator, its line and the value that it gave.
    pub after_read: Option<(String, Option<StackId>, String)>,
}

/// A failed request, as the allocator reported it to the recorder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedFailure {
    /// Size of the request.
    pub bytes: u64,
    /// The Python stack.
    pub stack: Option<StackId>,
}

/// Reads of device values by one stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueRead {
    /// The PyTorch operators that read, innermost first, separated by spaces.
    pub operators: String,
    /// Number of reads.
    pub count: u64,
    /// Bytes of the first read.
    pub bytes: u64,
    /// Time of the first read, in microseconds since the epoch.
    pub first_us: u64,
    /// The Python stack, if the thread had one.
    pub stack: Option<StackId>,
    /// The origin of the value that the program got.
    pub value: ReadValue,
    /// The use that the program makes of the value.
    pub usage: ReadUsage,
    /// The stack whose innermost line branches on the value, or the last line to which the value could be followed.
    pub decided_at: Option<StackId>,
}

words! {
    /// The origin of a value that a program got for one of the GPU.
    #[derive(Default)]
    pub enum ReadValue {
        /// Zero: the value is not known
        #[default]
        Zero = "zero",
        /// Computed from random numbers of the host, where a GPU draws its own
        Random = "random",
        /// Computed from a draw in place of a value that is not known, such as the next token
        Assumed = "assumed",
        /// Whether numbers that are not known are finite: they are taken to be
        Finite = "finite",
        /// The largest size that a result can have, for a mask that is not known
        Maximum = "maximum",
    }
}

words! {
    /// The use that a program makes of a value that it read, by its source.
    #[derive(Default)]
    pub enum ReadUsage {
        /// The value becomes text or a number in a log: no request depends on it
        Report = "report",
        /// The user set it with `--value`
        Set = "set",
        /// A branch or a loop depends on it
        Branch = "branch",
        /// A size depends on it
        Size = "size",
        /// Not known: the source is missing, or the value is passed to code that was not followed
        #[default]
        Unknown = "unknown",
    }
}

/// An estimate of the memory of one call of a library (cuDNN, cuSOLVER, cuFFT, cuSPARSE). Only it knows the actual size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Workspace {
    /// Time of execution, in microseconds since the epoch.
    pub time_us: u64,
    /// Device index.
    pub device: u64,
    /// Raw handle of the stream on which the plan ran.
    pub stream: u64,
    /// Estimated bytes.
    pub bytes: u64,
    /// The program fails without it. For a convolution PyTorch tries another plan instead.
    pub is_required: bool,
    /// If not 0, the memory outlives the call: the next request of this many bytes takes `bytes` on a GPU.
    pub minimum_bytes: u64,
}

/// Numbers of calls whose memory or result the stub does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct UnsizedWork {
    /// Executed cuDNN plans (convolutions, recurrent networks ..), whose workspaces are missing.
    pub cudnn: u64,
    /// Queries of cuSOLVER workspace sizes, answered with 0.
    pub cusolver: u64,
    /// Transforms by cuFFT, whose workspaces are missing.
    pub cufft: u64,
    /// Queries of cuSPARSE workspace sizes, answered with 0.
    pub cusparse: u64,
    /// Calls of cuDNN's attention, whose workspaces are missing.
    pub attention: u64,
    /// Queries of the time between two events, answered with 1 ms: a program that chooses by it chooses at random.
    pub timings: u64,
}

impl UnsizedWork {
    /// The libraries that were called, with the number of calls whose memory only they know.
    pub fn libraries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { cudnn, cusolver, cufft, cusparse, attention, timings: _ } = *self;
        let cudnn = cudnn.saturating_add(attention);
        let all = [("cuDNN", cudnn), ("cuSOLVER", cusolver), ("cuFFT", cufft), ("cuSPARSE", cusparse)];
        all.into_iter().filter(|(_, calls)| *calls > 0)
    }

    /// Number of calls whose memory only a library knows.
    pub fn calls(&self) -> u64 {
        self.libraries().map(|(_, calls)| calls).sum()
    }
}

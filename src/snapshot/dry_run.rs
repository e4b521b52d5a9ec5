//! What `oomscope dry-run` wrote down beside a snapshot: which GPU was assumed, and what could not be known.

use crate::base::ids::StackId;

/// A run over a stub of CUDA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRun {
    /// What the driver would have called the GPU.
    pub gpu: String,
    /// Its compute capability, such as `9.0`.
    pub capability: String,
    /// All of its memory.
    pub total_bytes: u64,
    /// What the context was taken to need of that.
    pub context_bytes: u64,
    /// Values that the host read of the device, all of them zero; the first read first.
    pub reads: Vec<ValueRead>,
    /// Reads by lines beyond those.
    pub reads_untold: u64,
    /// Work whose memory only a closed library or a GPU knows.
    pub unsized_by: Unsized,
    /// What plans of cuDNN could have taken, the first first.
    pub workspaces: Vec<Workspace>,
    /// Entry points that the program asked for and that the stub does not have.
    pub missing: Vec<String>,
    /// Bytes of large tensors of the host that were left as they were.
    pub unfilled_bytes: u64,
    /// Whether it was stopped as it went on to read values and nothing came of it.
    pub is_stopped: bool,
    /// Whether it was one rank of a job, and no other was there.
    pub is_alone: bool,
}

/// Reads of values by one stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueRead {
    /// The operators of PyTorch that read, innermost first, with spaces between.
    pub operators: String,
    /// How often.
    pub count: u64,
    /// How much, the first time.
    pub bytes: u64,
    /// When first, in microseconds since the epoch.
    pub first_us: u64,
    /// Where, if the thread ran Python.
    pub stack: Option<StackId>,
}

/// What one plan of cuDNN could take, by what is known of its algorithms; what it takes only cuDNN knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Workspace {
    /// When it was executed, in microseconds since the epoch.
    pub time_us: u64,
    /// On which device.
    pub device: u64,
    /// On which stream.
    pub stream: u64,
    /// How much.
    pub bytes: u64,
    /// Whether the program fails without: for a convolution PyTorch tries another plan.
    pub is_needed: bool,
}

/// How often each was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Unsized {
    /// Convolutions, recurrent networks and other plans of cuDNN, whose workspaces are missing.
    pub cudnn: u64,
    /// Workspaces of cuSOLVER, taken for none.
    pub cusolver: u64,
    /// Workspaces of cuFFT, taken for none.
    pub cufft: u64,
    /// Workspaces of cuSPARSE, taken for none.
    pub cusparse: u64,
    /// Times between two events, all of them 1 ms: what chooses by them chooses at random.
    pub timings: u64,
}

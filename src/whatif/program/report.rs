//! The JSON of `oomscope whatif --program`.

use serde::Serialize;

use super::change::ProgramChange;
use crate::base::warning::Warning;
use crate::stacks::frames::CodeLocation;
use crate::study::LostHistory;
use crate::whatif::JobOutcome;
use crate::whatif::sureness::Sureness;

/// The JSON of `oomscope whatif --program`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct ProgramReport {
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// The PyTorch releases whose rules the replay followed.
    pub torch_version: String,
    /// Problems of the snapshot, and limits of the replays.
    pub warnings: Vec<Warning>,
    /// Every device with a trace.
    pub devices: Vec<ProgramDevice>,
}

/// Changes to the program of one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "keys of the JSON")]
pub struct ProgramDevice {
    /// Device index.
    pub device: u64,
    /// Device memory of the replays, in bytes; null if unbounded.
    pub capacity_bytes: Option<u64>,
    /// Whether the model reproduces the recording; if not, every row is an estimate.
    pub exact: bool,
    /// Trace entries that the recording lost, for the page's warning.
    #[serde(skip)]
    pub lost: Option<LostHistory>,
    /// Bytes reserved before the first trace entry. If not 0, the peaks are those of a run that starts from an empty
    /// pool and allocates the initial blocks first, because earlier work may have left more reserved than the program
    /// needs.
    pub reserved_before_bytes: u64,
    /// Whether memory grows noticeably from iteration to iteration.
    #[serde(skip)]
    pub grows: bool,
    /// Whether the recording ends with a failed request, so that later requests are not recorded.
    pub ends_in_failure: bool,
    /// Whether the replays go on after that failure for one more step, like the step before it.
    pub goes_on: bool,
    /// The unchanged program.
    pub as_recorded: ProgramRow,
    /// Changed programs: guesses last, then in the order of served requests and reserved bytes saved.
    pub rows: Vec<ProgramRow>,
}

/// The replay of a program with one change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramRow {
    /// The kind of change.
    pub change: ProgramChange,
    /// How certain it is that the changed program makes exactly the replayed calls.
    pub sure: Sureness,
    /// The change in words.
    #[serde(rename = "what")]
    pub description: String,
    /// The source line to change, or that allocates most of the changed memory.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// Further source lines that must change with it.
    pub other_locations: Vec<CodeLocation>,
    /// Bytes of the changed blocks at the peak of the unchanged program.
    pub bytes_at_peak: u64,
    /// Whether the categories that choose these blocks are guesses.
    #[serde(skip)]
    pub rests_on_guess: bool,
    /// Peak of allocated bytes, if every request is served.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved bytes; on a device that is large enough if some requests are not served on this one.
    pub peak_reserved_bytes: u64,
    /// `peak_allocated_bytes` of the unchanged program, from the same start, - `peak_allocated_bytes`.
    pub allocated_gain_bytes: i64,
    /// `peak_reserved_bytes` of the unchanged program, from the same start, - `peak_reserved_bytes`.
    pub reserved_gain_bytes: i64,
    /// Whether every request is served; null if no capacity is known.
    pub fits: Option<bool>,
    /// Whether the last request that failed as recorded is served; null if none failed, if the changed program does not
    /// make it, and if it does not fail in the replay of the unchanged program.
    pub serves_failed: Option<bool>,
    /// Whether the replay includes requests after the last one that failed as recorded: recorded ones, or predicted ones
    /// up to the end of one more iteration. False if memory still grows from iteration to iteration.
    pub goes_on: bool,
    /// The outcome of the job with this change.
    pub then: JobOutcome,
    /// The first request that fails; null if none does.
    pub failed: Option<RowFailure>,
    /// Whether blocks from before the recording change. Requests are then served from a pool that starts empty and in
    /// which the program allocates these blocks first.
    #[serde(rename = "is_laid_out_anew")]
    pub starts_from_empty: bool,
}

/// A request that fails in a changed program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowFailure {
    /// Entry index of the request in the trace; beyond the end of the trace if the replay goes on for a step.
    pub event: usize,
    /// Requested bytes, rounded by the allocator.
    pub requested_bytes: u64,
    /// Number of requests served between the one that failed as recorded and this one; null unless this one is later.
    pub requests_later: Option<u64>,
    /// The source line that makes the request.
    #[serde(flatten)]
    pub location: CodeLocation,
}

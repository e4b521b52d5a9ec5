//! The answer: `oomscope/whatif-program/1`.

use serde::Serialize;

use super::change::{ProgramChange, Sure};
use crate::base::summary::Summary;
use crate::base::warning::Warning;
use crate::stacks::frames::CodeLocation;
use crate::study::LostHistory;

/// The JSON of `oomscope whatif --program`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramReport {
    /// `oomscope/whatif-program/1`
    pub schema: &'static str,
    /// What it comes to.
    pub summary: Summary,
    /// As given.
    pub path: String,
    /// The releases whose rules were followed.
    pub torch_version: String,
    /// What was odd about the file.
    pub warnings: Vec<Warning>,
    /// Every device that has a trace.
    pub devices: Vec<ProgramDevice>,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramDevice {
    /// Device number.
    pub device: u64,
    /// Bytes of its memory replayed on; `None` where nothing bounds them.
    pub capacity_bytes: Option<u64>,
    /// Whether the model reproduces the recording: every row is an estimate where it does not.
    pub exact: bool,
    /// What is lost of the trace.
    #[serde(skip)]
    pub lost: Option<LostHistory>,
    /// What was reserved before the first entry. If anything was, peaks are of a pool that begins empty, in which what
    /// was held before is laid out anew: earlier work may have left more in it than the program needs.
    pub reserved_before_bytes: u64,
    /// Whether the recording ends with a failure: what the program would have asked for next is not in it.
    pub ends_in_failure: bool,
    /// Whether it was taken to go on for one more step then, like the step before it.
    pub goes_on: bool,
    /// The program as it is.
    pub as_recorded: ProgramRow,
    /// Changes, those that serve most and need least first.
    pub rows: Vec<ProgramRow>,
    /// The program without each of the lines that hold most at the peak, most first.
    pub without: Vec<ProgramRow>,
}

/// A program that is changed in one way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramRow {
    /// The change.
    pub change: ProgramChange,
    /// How sure it is that the program, so changed, makes the calls that were replayed.
    pub sure: Sure,
    /// What to change, for a person.
    pub what: String,
    /// The line to change, or that it is about.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// What the memory that is changed comes to at the peak of the program as it is.
    pub bytes_at_peak: u64,
    /// The most that the program holds, every request served.
    pub peak_allocated_bytes: u64,
    /// The most that is held from the device; of one that is large enough, where not all requests are served.
    pub peak_reserved_bytes: u64,
    /// By how much the program as it is holds more.
    pub allocated_gain_bytes: i64,
    /// By how much more it reserves.
    pub reserved_gain_bytes: i64,
    /// Whether every request is served; `None` where no capacity is known.
    pub fits: Option<bool>,
    /// Whether the last request that failed when it was recorded is served; `None` if none failed, if it is no
    /// longer made, and where the replay of the program as it is does not fail there.
    pub serves_failed: Option<bool>,
    /// The first request that is not served.
    pub failed: Option<RowFailure>,
    /// Whether what was held before the recording is changed: whether requests are served is then told of a pool in
    /// which all of that is laid out anew, as if asked for at the start.
    pub is_laid_out_anew: bool,
}

/// A request that fails.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowFailure {
    /// The index of its entry in the trace; beyond its end where the program goes on for a step.
    pub event: usize,
    /// Its bytes, rounded.
    pub requested_bytes: u64,
    /// How many requests are served between the one that failed when it was recorded and this one, where this one
    /// comes later.
    pub requests_later: Option<u64>,
    /// The line that asks.
    #[serde(flatten)]
    pub location: CodeLocation,
}

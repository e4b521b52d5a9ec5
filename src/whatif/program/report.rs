//! Changes to a program, in the JSON of `oomscope whatif`.

use std::cmp::Reverse;

use serde::Serialize;

use crate::base::warning::words;
use crate::replay::ops::Script;
use crate::stacks::frames::{CodeLocation, FrameReport, LineId};
use crate::whatif::outcome::{TriedKind, TriedOn, TriedRow, mark, saves};
use crate::whatif::{JobOutcome, Sureness};

/// Changes to the program of one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramDevice {
    /// Device index.
    pub device: u64,
    /// Whether the recording ends with a failed request, so that later requests are not recorded.
    pub ends_in_failure: bool,
    /// Whether the replays go on after that failure for one more step, like the step before it.
    pub goes_on: bool,
    /// The unchanged program. If memory was reserved before the recording, the peaks are those of a run that starts from
    /// an empty pool and allocates the initial blocks first, because earlier work may have left more reserved than the
    /// program needs.
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
    /// Whether blocks from before the recording change. Requests are then served from a pool that starts empty and in
    /// which the program allocates these blocks first.
    #[serde(rename = "is_laid_out_anew")]
    pub starts_from_empty: bool,
}

/// A change whose gain is less than 1/20 of the peak does not make the headline ahead of larger gains that are guesses.
const NOTABLE_GAIN_PARTS: u64 = 20;

impl ProgramRow {
    /// Whether the changed program needs less memory, or serves the failed request.
    pub fn is_gain(&self) -> bool {
        let needs_less = (self.reserved_gain_bytes, self.allocated_gain_bytes) > (0, 0);
        needs_less || self.serves_failed == Some(true)
    }

    /// Whether the gain is no guess, and a notable part of `peak`.
    fn is_notable(&self, peak: u64) -> bool {
        let gain = u64::try_from(self.reserved_gain_bytes);
        self.sure != Sureness::Estimate && gain.is_ok_and(|gain| gain >= peak / NOTABLE_GAIN_PARTS)
    }

    /// The change, and where.
    pub fn label(&self) -> String {
        let Some(frame) = &self.location.frame else { return self.description.clone() };
        let others = self.other_locations.iter().filter_map(|line| line.frame.as_ref());
        let lines: Vec<String> = std::iter::once(frame).chain(others).map(FrameReport::brief_label).collect();
        format!("{} ({})", self.description, lines.join(", "))
    }
}

/// The `rows` that gain anything, best first: by the requests that they serve, then notable gains that are no guess
/// before others, then by their gains. `peak` is what the unchanged program reserves.
pub(super) fn rank_rows(mut rows: Vec<ProgramRow>, peak: u64) -> Vec<ProgramRow> {
    rows.retain(|row| row.is_gain() && row.reserved_gain_bytes >= 0);
    rows.sort_by_key(|row| {
        let serves = (row.fits, row.serves_failed, row.then.goes_on());
        let is_sure = row.serves_failed == Some(true) && row.sure != Sureness::Estimate;
        Reverse((serves, is_sure || row.is_notable(peak), row.reserved_gain_bytes, row.allocated_gain_bytes))
    });
    rows
}

impl TriedOn {
    /// `has_failed`: a request failed as recorded.
    pub(crate) fn change(self, row: &ProgramRow, has_failed: bool) -> TriedRow {
        let sure = if self.is_exact { row.sure } else { Sureness::Estimate };
        let stops_growth = !self.grows || row.goes_on;
        let unchanged = row.peak_reserved_bytes.saturating_add_signed(row.reserved_gain_bytes);
        let unchanged = Some(unchanged).filter(|_| !has_failed);
        TriedRow {
            mark: mark(&row.then, sure, stops_growth && saves(unchanged, row.peak_reserved_bytes)),
            kind: TriedKind::Program,
            what: row.description.clone(),
            then: row.then.clone(),
            peak_reserved_bytes: row.peak_reserved_bytes,
            unchanged_peak_reserved_bytes: unchanged,
            sure,
            location: row.location.frame.is_some().then(|| Box::new(row.location.clone())),
        }
    }
}

impl ProgramDevice {
    /// The rows of the changes, compared `on` the program as recorded.
    pub(crate) fn tried(&self, on: TriedOn) -> impl Iterator<Item = TriedRow> {
        let has_failed = !self.as_recorded.then.goes_on();
        self.rows.iter().map(move |row| on.change(row, has_failed))
    }
}

words! {
    /// A change to a program.
    #[non_exhaustive]
    pub enum ProgramChange {
        /// No change
        AsRecorded = "as-recorded",
        /// A repeated module keeps only its input and recomputes the rest in the backward pass
        Checkpoint = "checkpoint",
        /// The optimizer's step makes no temporaries
        OptimizerTemporaries = "optimizer-temporaries",
        /// The optimizer works on one parameter after the other (`foreach=False`)
        OptimizerForeach = "optimizer-foreach",
        /// The optimizer's state is on the host
        StateOffloaded = "state-offloaded",
        /// Memory that a step leaves behind is freed at its end
        LeftBehind = "left-behind",
        /// Gradients are freed before the forward pass that follows a step of the optimizer
        GradientsFreed = "gradients-freed",
        /// Half the batch, in two passes before each optimizer step
        HalfBatch = "half-batch",
        /// A call without gradients computes in parts
        InParts = "in-parts",
        /// The model is in half precision
        HalfPrecision = "half-precision",
    }
}

/// A recorded program with one change.
#[derive(Clone)]
pub(in crate::whatif) struct ChangedProgram {
    pub(super) change: ProgramChange,
    pub(in crate::whatif) certainty: Sureness,
    /// The change in words.
    pub(super) description: String,
    /// The source line to change, or that allocates most of the changed memory.
    pub(in crate::whatif) line: Option<LineId>,
    /// Further lines that must change with it.
    pub(in crate::whatif) other_lines: Vec<LineId>,
    /// The changed blocks' bytes at the peak.
    pub(super) bytes_at_peak: u64,
    pub(in crate::whatif) script: Script,
}

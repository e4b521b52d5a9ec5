//! Replaying changed programs.

use std::collections::BTreeSet;

use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange, ProgramRow};
use crate::allocator::device::UNBOUNDED;
use crate::allocator::{RunFigures, round_size};
use crate::base::units::signed_difference;
use crate::replay::model::{Hypothesis, Simulation, simulate, simulate_with_headroom};
use crate::replay::ops::{Program, Script, ScriptOpKind};
use crate::stacks::frames::CodeLocation;
use crate::study::attribution::KeptGraphs;
use crate::study::iterations::GrowthRate;
use crate::whatif::{JobOutcome, Overrides, Sureness, free_of, hypothesis_on, hypothesis_with};

/// Replays changed programs and compares them with the unchanged one.
pub(super) struct ChangeReplayer<'r, 's, 'a> {
    recording: &'r RecordedProgram<'s, 'a>,
    /// The capacity that the user gave.
    capacity: Option<u64>,
    /// The recorded settings, on a device of that capacity or of the recorded one.
    hypothesis: Hypothesis,
    /// Entry index of the last request that failed as recorded.
    last_failed: Option<usize>,
    /// The unchanged program.
    baseline: ReplayOutcome,
    /// The unchanged program, started from an empty pool, if anything was allocated before the recording.
    baseline_from_empty: Option<ReplayOutcome>,
}

/// Peaks that a program needs, and the requests that fail on the device.
#[derive(Debug, Clone)]
struct ReplayOutcome {
    needs: RunFigures,
    /// Entry index and bytes of each failed request; `None` without a capacity.
    failed: Option<Vec<(usize, u64)>>,
    /// The largest further request that would be served on the device when most is allocated; 0 if the replay does not go
    /// beyond a failure that ended the recording.
    headroom: u64,
    /// Bytes of the device that are never reserved; `None` without a capacity.
    free: Option<u64>,
}

impl ReplayOutcome {
    fn fails_at(&self, entry: usize) -> bool {
        self.failed.iter().flatten().any(|(at, _)| *at == entry)
    }
}

impl<'r, 's, 'a> ChangeReplayer<'r, 's, 'a> {
    pub(super) fn new(recording: &'r RecordedProgram<'s, 'a>, capacity: Option<u64>) -> Self {
        let device = recording.device;
        let hypothesis = hypothesis_with(device, &Overrides { capacity, ..Overrides::default() });
        let mut replayer = Self {
            recording,
            capacity,
            hypothesis,
            last_failed: device.device().failed_requests().last(),
            baseline: ReplayOutcome { needs: RunFigures::default(), failed: None, headroom: 0, free: None },
            baseline_from_empty: None,
        };
        replayer.baseline = replayer.replay(recording.program());
        if !recording.program().initial_blocks.is_empty() {
            let from_empty = recording.program().clone().with_empty_start();
            replayer.baseline_from_empty = Some(replayer.replay(&from_empty));
        }
        replayer
    }

    /// Peak reserved bytes of the unchanged program.
    pub(super) fn peak_reserved(&self) -> u64 {
        self.baseline.needs.peak_reserved_bytes
    }

    /// The row of a changed program if it serves the last failed request.
    pub(super) fn row_if_served(&self, row: ChangedProgram) -> Option<ProgramRow> {
        let program = row.script.to_program(self.recording.program());
        let on_device = self.replay_on_device(&program);
        if on_device.ooms.iter().any(|(at, _)| Some(*at) == self.last_failed) {
            return None;
        }
        let outcome = self.outcome_from(&program, on_device);
        let is_unrequested = self.last_failed.is_some_and(|entry| !self.still_requests(&row, entry));
        let has_failed = self.baseline.failed.as_ref().is_some_and(|failed| !failed.is_empty());
        Some(self.build_row(row, &outcome))
            .filter(|row| row.serves_failed == Some(true) || is_unrequested && row.fits == Some(true) && has_failed)
    }

    fn replay(&self, program: &Program<'_>) -> ReplayOutcome {
        self.outcome_from(program, self.replay_on_device(program))
    }

    fn replay_on_device(&self, program: &Program<'_>) -> Simulation {
        simulate_with_headroom(program, &self.hypothesis, &self.headroom_entries(program))
    }

    /// The entry after which to measure the headroom: that of the request with which most is allocated.
    fn headroom_entries(&self, program: &Program<'_>) -> BTreeSet<usize> {
        if !self.recording.is_continued() {
            return BTreeSet::new();
        }
        let mut peak = (0, 0);
        program.walk_requests(&self.hypothesis.settings, |request| {
            peak = peak.max((request.live_bytes, request.entry_index as usize));
        });
        BTreeSet::from([peak.1])
    }

    /// The outcome of `program`, which was replayed `on_device`.
    fn outcome_from(&self, program: &Program<'_>, on_device: Simulation) -> ReplayOutcome {
        let Simulation { ooms: mut failed, headroom, allocator, .. } = on_device;
        let figures = allocator.statistics.run_figures();
        drop(allocator); // as large as the live blocks
        // Peaks show what the program needs, so they depend neither on the device nor on memory that earlier work left
        // in the pool.
        let has_initial_memory = !program.initial_segments.is_empty();
        let needs = match () {
            () if has_initial_memory => self.unbounded_figures(&program.clone().with_empty_start()),
            () if !failed.is_empty() => self.unbounded_figures(program),
            () => figures,
        };
        // Memory reserved before the recording may alone exceed the device.
        let before = self.recording.device.reserved_before();
        if has_initial_memory && self.capacity.is_some_and(|bytes| bytes < before) {
            failed.insert(0, (0, before));
        }
        let failed = self.hypothesis.capacity.map(|_| failed);
        let free = free_of(&self.hypothesis, figures.peak_reserved_bytes);
        ReplayOutcome { needs, failed, headroom: headroom.into_values().min().unwrap_or(0), free }
    }

    fn unbounded_figures(&self, program: &Program<'_>) -> RunFigures {
        let on_unbounded = hypothesis_on(self.recording.device, UNBOUNDED, &Overrides::default());
        let hypothesis = Hypothesis { limit: None, ..on_unbounded };
        simulate(program, &hypothesis, None).figures()
    }

    /// The row of the unchanged program.
    pub(super) fn baseline_row(&self, row: ChangedProgram) -> ProgramRow {
        self.build_row(row, &self.baseline)
    }

    /// The row of a changed program.
    pub(super) fn replay_row(&self, row: ChangedProgram) -> ProgramRow {
        let outcome = self.replay(&row.script.to_program(self.recording.program()));
        self.build_row(row, &outcome)
    }

    fn build_row(&self, row: ChangedProgram, outcome: &ReplayOutcome) -> ProgramRow {
        let starts_from_empty = row.script.changes_initial_blocks(self.recording.program());
        let baseline = self.baseline_from_empty.as_ref().filter(|_| starts_from_empty).unwrap_or(&self.baseline);
        let last = self.last_failed.filter(|entry| self.still_requests(&row, *entry));
        // If the replay of the unchanged program does not fail either, the change cannot be credited.
        let serves_failed = last.filter(|entry| baseline.fails_at(*entry)).map(|entry| !outcome.fails_at(entry));
        let growth = remaining_growth(self.recording, &row);
        let (needs, unchanged) = (outcome.needs, baseline.needs);
        let goes_beyond_failure = self.recording.is_continued() || !self.recording.device.ends_with_failure();
        ProgramRow {
            then: self.then(&row, outcome, growth),
            location: self.location(&row),
            rests_on_guess: self.rests_on_guess(&row),
            change: row.change,
            sure: row.certainty,
            description: row.description,
            other_locations: row.other_lines.iter().map(|line| self.recording.code_location(Some(*line))).collect(),
            bytes_at_peak: row.bytes_at_peak,
            peak_allocated_bytes: needs.peak_allocated_bytes,
            peak_reserved_bytes: needs.peak_reserved_bytes,
            allocated_gain_bytes: signed_difference(needs.peak_allocated_bytes, unchanged.peak_allocated_bytes),
            reserved_gain_bytes: signed_difference(needs.peak_reserved_bytes, unchanged.peak_reserved_bytes),
            fits: outcome.failed.as_ref().map(Vec::is_empty),
            serves_failed,
            goes_on: goes_beyond_failure && growth.is_none(),
            starts_from_empty,
        }
    }

    /// Whether the purpose of a tenth of the memory that `row` changes, or more, is a guess.
    fn rests_on_guess(&self, row: &ChangedProgram) -> bool {
        if row.certainty != Sureness::Estimate {
            return false;
        }
        let (before, after) = (&self.recording.script.blocks, &row.script.blocks);
        let is_changed = before
            .iter()
            .enumerate()
            .map(|(index, block)| after.get(index).map(|changed| changed.bytes) != Some(block.bytes));
        let is_changed: Vec<bool> = is_changed.collect();
        let changed = self.recording.bytes_at_peak(|block| is_changed[block as usize]);
        let guessed =
            self.recording.bytes_at_peak(|block| is_changed[block as usize] && self.recording.is_guess(block));
        guessed >= changed.div_ceil(10).max(1)
    }

    /// The line to change.
    fn location(&self, row: &ChangedProgram) -> CodeLocation {
        let mut location = self.recording.code_location(row.line);
        if row.change == ProgramChange::LeftBehind
            && let Some(result) = KeptGraphs::from_device(self.recording.device).and_then(|graphs| graphs.result_at)
        {
            // Its graph keeps what the largest line made.
            location.frame = Some(result);
        }
        location
    }

    /// The outcome of the job with this change, after which memory grows by `growth`.
    fn then(&self, row: &ChangedProgram, outcome: &ReplayOutcome, growth: Option<GrowthRate>) -> JobOutcome {
        let device = self.recording.device;
        if row.change == ProgramChange::AsRecorded && self.capacity.is_none() {
            return JobOutcome::recorded(device, outcome.free);
        }
        let failed = outcome.failed.as_deref().unwrap_or_default();
        let forecast = self.recording.forecast.as_ref();
        let later = forecast.map(|forecast| forecast.outcome_with(device, failed, outcome.headroom, growth));
        JobOutcome::from_replay(device, failed, later, outcome.free)
    }

    /// Whether the changed program still makes the request of `entry`, which failed as recorded.
    fn still_requests(&self, row: &ChangedProgram, entry: usize) -> bool {
        row.script.blocks.iter().any(|block| {
            let allocated_at =
                block.allocated_at.map(|op| self.recording.program().operations[op as usize].entry_index);
            block.is_failed && block.bytes > 0 && allocated_at.is_some_and(|at| at as usize == entry)
        })
    }
}

/// Growth is gone if less than this part of it is left: most programs leave a scalar behind.
const GONE_PARTS: u64 = 100;

/// The growth of the live memory of `row`, a changed copy of the recorded program, measured at the starts of the recorded
/// iterations; `None` if the recorded program does not grow, or if the change stops it.
fn remaining_growth(recording: &RecordedProgram<'_, '_>, row: &ChangedProgram) -> Option<GrowthRate> {
    let recorded = recording.device.growth()?;
    if row.change == ProgramChange::HalfBatch {
        return Some(recorded.rate); // two halves leave as much
    }
    let live = live_at(recording, &row.script, &recorded.start_entries);
    let rate = GrowthRate::from_live(&live, recorded.rate.is_occasional)?;
    (rate.bytes_per_iteration >= recorded.rate.bytes_per_iteration / GONE_PARTS).then_some(rate)
}

/// The live bytes of `script` before the first request of each of the ascending `entries` or after it.
fn live_at(recording: &RecordedProgram<'_, '_>, script: &Script, entries: &[usize]) -> Vec<i64> {
    let settings = &recording.device.inferred().hypothesis.settings;
    let operations = &recording.program().operations;
    let mut live_by_entry = Vec::with_capacity(entries.len());
    let mut live = 0i64;
    for op in &script.ops {
        match op.kind {
            ScriptOpKind::Alloc(block) => {
                let entry = operations[op.source as usize].entry_index as usize;
                let passed = entries[live_by_entry.len()..].iter().take_while(|start| **start <= entry).count();
                live_by_entry.extend(std::iter::repeat_n(live, passed));
                if live_by_entry.len() == entries.len() {
                    break;
                }
                let block = &script.blocks[block as usize];
                if !block.is_failed {
                    live = live.saturating_add_unsigned(round_size(block.bytes, settings));
                }
            }
            ScriptOpKind::Free { block, .. } => {
                let bytes = round_size(script.blocks[block as usize].bytes, settings);
                live = live.saturating_sub_unsigned(bytes);
            }
            ScriptOpKind::Other => {}
        }
    }
    live_by_entry
}

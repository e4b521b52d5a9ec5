//! What a changed program comes to, by replay.

use super::answer::{ProgramRow, RowFailure};
use super::change::Changed;
use super::recording::Recording;
use crate::allocator::device::UNBOUNDED;
use crate::base::units::change;
use crate::replay::ops::{OperationKind, Program};
use crate::replay::model::{Hypothesis, simulate};
use crate::whatif::{Overrides, hypothesis_with};

/// The program as it is, and how it is replayed.
pub(super) struct Replays<'r, 's, 'a> {
    recording: &'r Recording<'s, 'a>,
    /// The device that was asked for.
    capacity: Option<u64>,
    /// As recorded, on the device.
    hypothesis: Hypothesis,
    /// The entry of the last request that failed when it was recorded.
    last_failed: Option<usize>,
    /// The program as it is.
    plain: Outcome,
    /// The same with what it held before laid out anew.
    anew: Option<Outcome>,
}

/// What a replay came to.
#[derive(Debug, Clone)]
struct Outcome {
    allocated: u64,
    reserved: u64,
    /// The requests that failed on the device, if its size is known: the entry, and the bytes.
    failed: Option<Vec<(usize, u64)>>,
}

impl Outcome {
    fn fails_at(&self, entry: usize) -> bool {
        self.failed.iter().flatten().any(|(at, _)| *at == entry)
    }
}

/// What one replay came to.
struct Peaks {
    allocated: u64,
    reserved: u64,
    /// The requests that failed: the entry, and the bytes.
    failed: Vec<(usize, u64)>,
}

fn peaks(program: &Program<'_>, hypothesis: &Hypothesis) -> Peaks {
    let done = simulate(program, hypothesis, None);
    let statistics = done.allocator.statistics();
    Peaks {
        allocated: statistics.allocated_bytes.all.peak,
        reserved: statistics.reserved_bytes.all.peak,
        failed: done.ooms,
    }
}

impl<'r, 's, 'a> Replays<'r, 's, 'a> {
    pub(super) fn of(recording: &'r Recording<'s, 'a>, capacity: Option<u64>) -> Self {
        let device = recording.device;
        let hypothesis = hypothesis_with(device, &Overrides { capacity, ..Overrides::default() });
        let mut replays = Self {
            recording,
            capacity,
            hypothesis,
            last_failed: device.device().failed().last(),
            plain: Outcome { allocated: 0, reserved: 0, failed: None },
            anew: None,
        };
        replays.plain = replays.outcome(&recording.program);
        if !recording.program.initial_blocks.is_empty() {
            let anew = recording.program.clone().into_owned().with_empty_start();
            replays.anew = Some(replays.outcome(&anew));
        }
        replays
    }

    /// Bytes of device memory replayed on.
    pub(super) fn capacity(&self) -> Option<u64> {
        self.hypothesis.capacity
    }

    /// What the program as it is reserves at its peak.
    pub(super) fn peak_reserved(&self) -> u64 {
        self.plain.reserved
    }

    /// A changed program, if the last request that failed is served in it.
    pub(super) fn row_that_serves(&self, row: Changed) -> Option<ProgramRow> {
        let is_anew = row.script.changes_initial_blocks(&self.recording.program);
        let program = row.script.to_program(&self.recording.program);
        let own = peaks(&program, &self.hypothesis);
        if own.failed.iter().any(|(at, _)| Some(*at) == self.last_failed) {
            return None;
        }
        let outcome = self.outcome_of(&program, own);
        Some(self.told(row, &outcome, is_anew)).filter(|row| row.serves_failed == Some(true))
    }

    fn outcome(&self, program: &Program<'_>) -> Outcome {
        self.outcome_of(program, peaks(program, &self.hypothesis))
    }

    /// What `program` comes to, the replay of which on the device came to `own`.
    fn outcome_of(&self, program: &Program<'_>, own: Peaks) -> Outcome {
        // What the program needs, not what the device has, nor what earlier work left in the pool.
        let needed = |program: &Program<'_>| {
            let overrides = Overrides { capacity: Some(UNBOUNDED), ..Overrides::default() };
            peaks(program, &Hypothesis { limit: None, ..hypothesis_with(self.recording.device, &overrides) })
        };
        let begins_late = !program.initial_segments.is_empty();
        let needs = match () {
            () if begins_late => needed(&program.clone().with_empty_start()),
            () if !own.failed.is_empty() => needed(program),
            () => Peaks { failed: Vec::new(), ..own },
        };
        let mut failed = own.failed;
        // What was held before and stays may be more than the device has.
        let before = self.recording.device.reserved_before();
        if begins_late && self.capacity.is_some_and(|bytes| bytes < before) {
            failed.insert(0, (0, before));
        }
        let failed = self.hypothesis.capacity.map(|_| failed);
        Outcome { allocated: needs.allocated, reserved: needs.reserved, failed }
    }

    /// The program as it is.
    pub(super) fn as_recorded(&self, row: Changed) -> ProgramRow {
        self.told(row, &self.plain, false)
    }

    /// A changed program.
    pub(super) fn row(&self, row: Changed) -> ProgramRow {
        let is_anew = row.script.changes_initial_blocks(&self.recording.program);
        let program = row.script.to_program(&self.recording.program);
        let outcome = self.outcome(&program);
        self.told(row, &outcome, is_anew)
    }

    fn told(&self, row: Changed, outcome: &Outcome, is_anew: bool) -> ProgramRow {
        let control = self.anew.as_ref().filter(|_| is_anew).unwrap_or(&self.plain);
        let last = self.last_failed;
        let is_made = last.is_some_and(|entry| self.is_made(&row, entry));
        // Nothing is claimed where the program as it is does not fail either.
        let serves_failed = last
            .filter(|entry| is_made && control.fails_at(*entry))
            .map(|entry| !outcome.fails_at(entry));
        let failures = outcome.failed.as_ref();
        ProgramRow {
            change: row.change,
            sure: row.sure,
            what: row.what,
            location: self.recording.code_location(row.line),
            bytes_at_peak: row.bytes_at_peak,
            peak_allocated_bytes: outcome.allocated,
            peak_reserved_bytes: outcome.reserved,
            allocated_gain_bytes: change(outcome.allocated, self.plain.allocated),
            reserved_gain_bytes: change(outcome.reserved, self.plain.reserved),
            fits: failures.map(Vec::is_empty),
            serves_failed,
            failed: failures.and_then(|failed| failed.first()).map(|failed| self.failure(*failed)),
            is_laid_out_anew: is_anew,
        }
    }

    /// Whether the request of entry `entry`, which failed, is still made.
    fn is_made(&self, row: &Changed, entry: usize) -> bool {
        row.script.blocks.iter().any(|block| {
            let asked = block.allocated_at.map(|call| self.recording.program.operations[call as usize].entry_index);
            block.is_failed && block.bytes > 0 && asked.is_some_and(|at| at as usize == entry)
        })
    }

    fn failure(&self, (event, requested_bytes): (usize, u64)) -> RowFailure {
        let recording = self.recording;
        let asks = recording.program.operations.iter().position(|call| {
            call.entry_index as usize == event && matches!(call.kind, OperationKind::Alloc { .. })
        });
        let stacks = recording.device.stacks();
        let line = asks.map(|call| {
            let entry = recording.entry_of(crate::base::ids::row(call));
            stacks.line(recording.device.device().entry(entry).made_by)
        });
        let location = recording.code_location(line);
        let last = self.last_failed.filter(|last| *last < event);
        let requests_later = last.map(|last| recording.requests_between(last, event));
        RowFailure { event, requested_bytes, requests_later, location }
    }
}

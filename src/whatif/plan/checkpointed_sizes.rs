//! The largest size of a program with activation checkpointing, by replay of the changed calls at each size.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::cell::{PlanCell, PlanChange};
use crate::allocator::device::Placement;
use crate::replay::model::peak_if_served;
use crate::replay::ops::Program;
use crate::whatif::fit::{FitDevice, FittedProgram, SizeSearch};
use crate::whatif::program::{ChangedProgram, FindChange, RecordedProgram, checkpoint_all, checkpoint_largest};
use crate::whatif::{Overrides, hypothesis_with};

/// A checkpointed program at any size.
pub(super) struct CheckpointedSizes<'f, 's, 'a> {
    fitted: &'f FittedProgram<'f, 's, 'a>,
    recording: RecordedProgram<'s, 'a>,
    checkpoint: FindChange,
    /// The program at the recorded size.
    recorded: ChangedProgram,
    /// Peak of the live bytes by size: each GPU searches among them.
    live_bytes: Mutex<BTreeMap<u64, u64>>,
}

impl<'f, 's, 'a> CheckpointedSizes<'f, 's, 'a> {
    /// Checkpointing of all repeated modules, or of the largest one if that saves more; `None` if the recording has none.
    pub(super) fn new(fitted: &'f FittedProgram<'f, 's, 'a>) -> Option<Self> {
        let ways: [FindChange; 2] = [checkpoint_largest, checkpoint_all];
        let all = ways.into_iter().filter_map(|checkpoint| {
            let recording = RecordedProgram::from_device(fitted.base.device);
            // Predicted requests have no law.
            if recording.is_continued() || !recording.has_steps() {
                return None;
            }
            let recorded = checkpoint(&recording)?;
            Some(Self { fitted, recording, checkpoint, recorded, live_bytes: Mutex::default() })
        });
        all.min_by_key(Self::recorded_peak_bytes)
    }

    /// Peak of the live bytes at the recorded size.
    fn recorded_peak_bytes(&self) -> u64 {
        let hypothesis = hypothesis_with(self.recording.device, &Overrides::default());
        self.recorded.script.to_program(self.recording.program()).peak_bytes(&hypothesis.settings)
    }

    /// The program at `size`; `None` if there is nothing to checkpoint there.
    fn program_at(&self, size: u64) -> Option<Program<'a>> {
        let changed = (self.checkpoint)(&self.recording.resized(&self.fitted.bytes_at(size)))?;
        Some(changed.script.to_program(self.recording.program()))
    }

    /// The largest size that fits under `overrides`; `None` without a capacity.
    pub(super) fn cell(&self, device: &FitDevice, overrides: &Overrides, start_size: u64) -> Option<PlanCell> {
        let hypothesis = hypothesis_with(self.recording.device, overrides);
        let live_bytes = |size: u64| {
            let known = self.live_bytes.lock().ok().and_then(|known| known.get(&size).copied());
            known.unwrap_or_else(|| {
                let bytes = self.program_at(size).map_or(u64::MAX, |program| program.peak_bytes(&hypothesis.settings));
                if let Ok(mut known) = self.live_bytes.lock() {
                    known.insert(size, bytes);
                }
                bytes
            })
        };
        let search = SizeSearch {
            peak_live_bytes: &live_bytes,
            is_served: &|size| {
                self.program_at(size).and_then(|at| peak_if_served(&at, &hypothesis, Placement::Lowest)).is_some()
            },
            capacity: overrides.capacity?,
            multiple: 1,
            // The changed calls themselves are not certain.
            neighbors: 0,
        };
        let size = search.search(start_size).safe;
        let location = self.recording.code_location(self.recorded.line);
        let others = self.recorded.other_lines.iter().map(|line| self.recording.code_location(Some(*line)));
        Some(PlanCell {
            change: PlanChange::Checkpoint,
            size,
            certainty: device.certainty_at(size),
            sure: self.recorded.certainty,
            location: location.frame.is_some().then_some(location),
            other_locations: others.collect(),
            unreserved_bytes: None,
            fails: None,
        })
    }
}

//! The largest size that fits one GPU with one change: under allocator settings as `fit` predicts it, bounded and corrected
//! by runs; with activation checkpointing by replay of the changed calls at each size.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::allocator::device::{GpuModel, Placement};
use crate::base::units::signed_difference;
use crate::base::warning::words;
use crate::replay::model::peak_if_served;
use crate::replay::ops::Program;
use crate::stacks::frames::CodeLocation;
use crate::whatif::fit::{
    FitDevice, FitSearch, FittedProgram, FittedSizes, PredictedFailure, SizeReport, SizeSearch, predict, size_on_line,
    step_below,
};
use crate::whatif::program::{ChangedProgram, FindChange, RecordedProgram, checkpoint_all, checkpoint_largest};
use crate::whatif::{Overrides, Sureness, hypothesis_with};

words! {
    /// A change that a plan tries.
    pub enum PlanChange {
        /// Nothing
        AsIs = "as-is",
        /// The allocator setting `expandable_segments:True`
        ExpandableSegments = "expandable-segments",
        /// Activation checkpointing of all repeated modules, or of the one that holds most if that saves more
        Checkpoint = "checkpoint",
    }
}

/// The largest size that fits one GPU with one change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanCell {
    /// The change.
    pub change: PlanChange,
    /// The largest size below which all fit; 0 if none fits, null if every size does.
    pub size: Option<u64>,
    /// How certain that size is: `confirmed` if a dry run at it ended on this GPU.
    pub certainty: Sureness,
    /// How certain it is that the changed program makes exactly the replayed calls.
    pub sure: Sureness,
    /// The source line to change; null if there is none.
    pub location: Option<CodeLocation>,
    /// Further source lines that must change with it.
    pub other_locations: Vec<CodeLocation>,
    /// Device memory - reserved bytes at the peak of that size; null without a size, and for changes of the program.
    pub unreserved_bytes: Option<u64>,
    /// The first request that fails at the next size, `size` + 1; null for changes of the program.
    pub fails: Option<PredictedFailure>,
}

/// A run of the program on a GPU, or a dry run for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRun {
    /// Name of the GPU.
    pub gpu: String,
    /// Whether it ran with `expandable_segments:True`.
    pub expandable_segments: bool,
    /// The size.
    pub size: u64,
    /// Whether it ran to its end.
    pub fits: bool,
    /// Whether no value of the GPU, and no memory that only a GPU knows, may decide otherwise.
    pub is_certain: bool,
    /// Peak of reserved bytes.
    pub reserved_bytes: u64,
    /// Path of a snapshot of the run.
    pub snapshot: String,
}

pub(super) struct SettingsSizes<'f, 'r, 's, 'a> {
    pub(super) fitted: &'f FittedSizes<'r, 's, 'a>,
    pub(super) device: &'f FitDevice,
    pub(super) runs: &'f [PlanRun],
}

impl SettingsSizes<'_, '_, '_, '_> {
    /// The largest size that fits `gpu` under `overrides`, which have its capacity.
    pub(super) fn cell(&self, gpu: &GpuModel, change: PlanChange, overrides: &Overrides) -> PlanCell {
        let runs = OwnRuns::new(self.runs, gpu, change);
        let usable = gpu.usable_bytes();
        // How much less the kernels of this GPU request than those of the recordings.
        let unused = runs.fitting.map_or(0, |run| {
            let predicted = self.predict(run.size, overrides).peak_reserved_bytes;
            signed_difference(run.reserved_bytes, predicted)
        });
        let corrected = Overrides { capacity: Some(usable.saturating_add_signed(unused)), ..overrides.clone() };
        let search = FitSearch { fitted: &|size| self.fitted.at(size), multiple: 1 };
        let found = search.search(&corrected, self.device.largest_recorded);
        let predicted = found.map_or(Some(0), |found| found.safe);
        let size = runs.bound(predicted);
        let next = size.map(|size| self.predict(size.saturating_add(1), &corrected));
        let cell = runs.cell(gpu, change, size, self.device.certainty_at(size));
        PlanCell {
            unreserved_bytes: cell.unreserved_bytes.or_else(|| {
                let reserved = self.predict(size.filter(|size| *size > 0)?, &corrected).peak_reserved_bytes;
                Some(usable.saturating_add_signed(unused).saturating_sub(reserved))
            }),
            fails: next.and_then(|next| next.failed),
            ..cell
        }
    }

    fn predict(&self, size: u64, overrides: &Overrides) -> SizeReport {
        predict(self.fitted.at(size), size, false, overrides)
    }
}

/// The largest size that fits `gpu` by a line through the reserved bytes of `points`, because the recordings have too little
/// in common to predict each request; `None` if they do not grow.
pub(super) fn extrapolated_cell(gpu: &GpuModel, runs: &[PlanRun], points: &[(u64, u64)]) -> Option<PlanCell> {
    let runs = OwnRuns::new(runs, gpu, PlanChange::AsIs);
    let size = runs.bound(Some(size_on_line(points, gpu.usable_bytes())?));
    Some(runs.cell(gpu, PlanChange::AsIs, size, Sureness::Estimate))
}

/// The runs of one GPU under the same settings: they confirm, bound and correct a predicted size.
struct OwnRuns<'r> {
    /// The largest that fits.
    fitting: Option<&'r PlanRun>,
    /// The smallest size that fails.
    fails: Option<u64>,
    failures: u32,
}

impl<'r> OwnRuns<'r> {
    fn new(runs: &'r [PlanRun], gpu: &GpuModel, change: PlanChange) -> Self {
        let expandable_segments = change == PlanChange::ExpandableSegments;
        let (mut fitting, mut fails, mut failures) = (None::<&PlanRun>, None, 0);
        for run in runs.iter().filter(|run| run.gpu == gpu.name && run.expandable_segments == expandable_segments) {
            if run.fits {
                fitting = Some(fitting.filter(|largest| largest.size > run.size).unwrap_or(run));
            } else {
                fails = Some(fails.map_or(run.size, |size: u64| size.min(run.size)));
                failures += 1;
            }
        }
        Self { fitting, fails, failures }
    }

    /// The largest size by these runs and by a prediction; `None` if every size fits.
    fn bound(&self, predicted: Option<u64>) -> Option<u64> {
        let largest_run = self.fitting.map_or(0, |run| run.size);
        let size = match self.fails {
            Some(fails) if predicted.is_none_or(|size| size >= fails) => {
                fails.saturating_sub(step_below(fails, self.failures).max(1))
            }
            _ => predicted?,
        };
        Some(size.max(largest_run))
    }

    /// The cell of `size`, which is as certain as the run that shows that it fits, or else as `predicted`.
    fn cell(&self, gpu: &GpuModel, change: PlanChange, size: Option<u64>, predicted: Sureness) -> PlanCell {
        let confirming = self.fitting.filter(|run| Some(run.size) == size);
        PlanCell {
            change,
            size,
            certainty: confirming
                .map_or(predicted, |run| if run.is_certain { Sureness::Confirmed } else { Sureness::Should }),
            sure: Sureness::Checked,
            location: None,
            other_locations: Vec::new(),
            unreserved_bytes: confirming.map(|run| gpu.usable_bytes().saturating_sub(run.reserved_bytes)),
            fails: None,
        }
    }
}

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
        let search = SizeSearch {
            peak_live_bytes: &|size| {
                let known = self.live_bytes.lock().ok().and_then(|known| known.get(&size).copied());
                known.unwrap_or_else(|| {
                    let bytes = self.program_at(size).map_or(u64::MAX, |at| at.peak_bytes(&hypothesis.settings));
                    if let Ok(mut known) = self.live_bytes.lock() {
                        known.insert(size, bytes);
                    }
                    bytes
                })
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of this `size` on `gpu`.
    fn run(gpu: &GpuModel, fits: bool, size: u64) -> PlanRun {
        PlanRun {
            gpu: gpu.name.to_owned(),
            expandable_segments: false,
            size,
            fits,
            is_certain: true,
            reserved_bytes: 0,
            snapshot: String::new(),
        }
    }

    /// The bound of a `predicted` size, and its certainty, after runs on a T4 and on another GPU.
    fn bound(fits: &[u64], fails: &[u64], predicted: Option<u64>) -> (Option<u64>, Sureness) {
        let gpu = GpuModel::find("t4").unwrap();
        let own = fits.iter().map(|size| run(gpu, true, *size)).chain(fails.iter().map(|size| run(gpu, false, *size)));
        let other = [
            PlanRun { gpu: "other".to_owned(), ..run(gpu, false, 1) },
            PlanRun { expandable_segments: true, ..run(gpu, true, 9_999) },
        ];
        let runs: Vec<PlanRun> = own.chain(other).collect();
        let runs = OwnRuns::new(&runs, gpu, PlanChange::AsIs);
        let size = runs.bound(predicted);
        (size, runs.cell(gpu, PlanChange::AsIs, size, Sureness::Estimate).certainty)
    }

    #[test]
    fn runs_bound_a_predicted_size() {
        assert_eq!(bound(&[], &[], Some(40)), (Some(40), Sureness::Estimate));
        assert_eq!(bound(&[], &[], None), (None, Sureness::Estimate));
        assert_eq!(bound(&[50, 45], &[], Some(40)), (Some(50), Sureness::Confirmed));
        for (fails, predicted, size) in [
            (&[100, 120][..1], Some(99), 99),
            (&[100], Some(100), 98),
            (&[100], None, 98),
            (&[120, 100], Some(100), 96),
            (&[1], Some(7), 0),
        ] {
            assert_eq!(bound(&[], fails, predicted), (Some(size), Sureness::Estimate), "{fails:?} {predicted:?}");
        }
        assert_eq!(bound(&[97], &[100, 120], Some(100)), (Some(97), Sureness::Confirmed));
    }
}

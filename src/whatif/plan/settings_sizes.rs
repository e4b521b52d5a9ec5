//! The largest size under allocator settings: predicted by `fit`, bounded and corrected by runs.

use super::cell::{PlanCell, PlanChange, PlanRun};
use crate::allocator::device::GpuModel;
use crate::base::units::signed_difference;
use crate::whatif::fit::{FitDevice, FitSearch, FittedSizes, SizeReport, predict, size_on_line, step_below};
use crate::whatif::{Overrides, Sureness};

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
        let fitted = |size: u64| self.fitted.at(size);
        let search = FitSearch { fitted: &fitted, multiple: 1 };
        let found = search.search(&corrected, self.device.largest_recorded);
        let predicted = found.map_or(Some(0), |found| found.safe);
        let size = runs.bound(predicted);
        let predicted_unreserved = || {
            let reserved = self.predict(size.filter(|size| *size > 0)?, &corrected).peak_reserved_bytes;
            Some(usable.saturating_add_signed(unused).saturating_sub(reserved))
        };
        let next = size.map(|size| self.predict(size.saturating_add(1), &corrected));
        let cell = runs.cell(gpu, change, size, self.device.certainty_at(size));
        PlanCell {
            unreserved_bytes: cell.unreserved_bytes.or_else(predicted_unreserved),
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
        let certainty_by = |run: &PlanRun| if run.is_certain { Sureness::Confirmed } else { Sureness::Should };
        PlanCell {
            change,
            size,
            certainty: confirming.map_or(predicted, certainty_by),
            sure: Sureness::Checked,
            location: None,
            other_locations: Vec::new(),
            unreserved_bytes: confirming.map(|run| gpu.usable_bytes().saturating_sub(run.reserved_bytes)),
            fails: None,
        }
    }
}

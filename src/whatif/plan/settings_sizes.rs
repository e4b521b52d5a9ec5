//! The largest size under allocator settings: predicted by `fit`, bounded and corrected by runs.

use super::cell::{PlanCell, PlanChange, PlanRun};
use super::own_runs::{OwnRuns, certainty_by};
use crate::allocator::device::GpuModel;
use crate::base::units::signed_difference;
use crate::whatif::fit::{FitDevice, FitSearch, FittedSizes, SizeReport, predict, size_on_line};
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
        let confirming = runs.confirming(size);
        let unreserved_bytes = match (confirming, size) {
            (Some(run), _) => Some(usable.saturating_sub(run.reserved_bytes)),
            (None, Some(size @ 1..)) => {
                let reserved = self.predict(size, &corrected).peak_reserved_bytes;
                Some(usable.saturating_add_signed(unused).saturating_sub(reserved))
            }
            _ => None,
        };
        let next = size.map(|size| self.predict(size.saturating_add(1), &corrected));
        PlanCell {
            change,
            size,
            certainty: confirming.map_or_else(|| self.device.certainty_at(size), certainty_by),
            sure: Sureness::Checked,
            location: None,
            other_locations: Vec::new(),
            unreserved_bytes,
            fails: next.and_then(|next| next.failed),
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
    let confirming = runs.confirming(size);
    Some(PlanCell {
        change: PlanChange::AsIs,
        size,
        certainty: confirming.map_or(Sureness::Estimate, certainty_by),
        sure: Sureness::Checked,
        location: None,
        other_locations: Vec::new(),
        unreserved_bytes: confirming.map(|run| gpu.usable_bytes().saturating_sub(run.reserved_bytes)),
        fails: None,
    })
}

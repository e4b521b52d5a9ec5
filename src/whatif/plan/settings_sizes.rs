//! The largest size under allocator settings: predicted by `fit`, bounded and corrected by runs.

use super::cell::PlanRun;
use super::cell::{PlanCell, PlanChange, PlanFailure};
use crate::allocator::device::GpuModel;
use crate::base::units::signed_difference;
use crate::whatif::Overrides;
use crate::whatif::Sureness;
use crate::whatif::fit::{FitDevice, FitSearch, FittedSizes, LargestSize, SizeReport, predict, step_below};

pub(super) struct SettingsSizes<'f, 'r, 's, 'a> {
    pub(super) fitted: &'f FittedSizes<'r, 's, 'a>,
    pub(super) device: &'f FitDevice,
    pub(super) runs: &'f [PlanRun],
}

impl SettingsSizes<'_, '_, '_, '_> {
    /// The largest size that fits `gpu` under `overrides`, which have its capacity.
    pub(super) fn cell(&self, gpu: &GpuModel, change: PlanChange, overrides: &Overrides) -> PlanCell {
        let is_own = |run: &&PlanRun| {
            run.gpu == gpu.name && run.expandable_segments == (change == PlanChange::ExpandableSegments)
        };
        let runs = || self.runs.iter().filter(is_own);
        let fitting = runs().filter(|run| run.fits).max_by_key(|run| run.size);
        let failing = runs().filter(|run| !run.fits).map(|run| run.size);
        let (failures, fails) = (failing.clone().count(), failing.min());
        let usable = gpu.usable_bytes();
        // How much less the kernels of this GPU request than those of the recordings.
        let unused = fitting.map_or(0, |run| {
            let predicted = self.predict(run.size, overrides).peak_reserved_bytes;
            signed_difference(run.reserved_bytes, predicted)
        });
        let corrected = Overrides { capacity: Some(usable.saturating_add_signed(unused)), ..overrides.clone() };
        let fitted = |size: u64| self.fitted.at(size);
        let search = FitSearch { fitted: &fitted, multiple: 1 };
        let found = search.search(&corrected, self.device.largest_recorded).map(|found| found.safe);
        let predicted = match found {
            Some(LargestSize::Size(size)) => Some(size),
            Some(LargestSize::Everything) => None,
            Some(LargestSize::Nothing) | None => Some(0),
        };
        let largest_run = fitting.map_or(0, |run| run.size);
        let size = match (predicted, fails) {
            (Some(size), Some(fails)) if size >= fails => Some(step_down(fails, failures).max(largest_run)),
            (None, Some(fails)) => Some(step_down(fails, failures).max(largest_run)),
            (predicted, _) => predicted.map(|size| size.max(largest_run)),
        };
        let confirming = fitting.filter(|run| Some(run.size) == size);
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
            ranks: None,
            size,
            certainty: match confirming {
                Some(run) if run.is_certain => Sureness::Confirmed,
                Some(_) => Sureness::Should,
                None => self.device.certainty_at(size),
            },
            sure: Sureness::Checked,
            location: None,
            other_locations: Vec::new(),
            unreserved_bytes,
            fails: next.and_then(PlanFailure::from_prediction),
        }
    }

    fn predict(&self, size: u64, overrides: &Overrides) -> SizeReport {
        predict(self.fitted.at(size), size, false, overrides)
    }
}

/// A size below `fails`, which failed as the last of `failures` runs.
fn step_down(fails: u64, failures: usize) -> u64 {
    let step = step_below(fails, u32::try_from(failures).unwrap_or(u32::MAX));
    fails.saturating_sub(step.max(1))
}

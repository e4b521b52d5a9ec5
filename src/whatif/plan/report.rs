//! The JSON of `oomscope plan`, and what it is made from.

use std::cmp::Reverse;

use rayon::prelude::*;
use serde::Serialize;

use super::cell::{PlanCell, PlanChange};
use super::changed_sizes::ChangedSizes;
use super::plan_run::PlanRun;
use super::settings_sizes::SettingsSizes;
use crate::allocator::conf::EXPANDABLE_SEGMENTS;
use crate::allocator::device::GpuModel;
use crate::base::warning::Warning;
use crate::whatif::fit::{DeviceRecordings, FitDevice, FitInput, FitOptions, FittedSizes, RecordingReport, fit};
use crate::whatif::{Overrides, apply_option};

/// Number of ranks to shard the optimizer's state across.
const RANKS: [u64; 3] = [2, 4, 8];

/// The GPUs, the runs and the size of a plan.
#[derive(Debug, Clone)]
pub struct PlanOptions<'o> {
    /// Name of the size, such as `BATCH`.
    pub name: &'o str,
    /// The command that was run; `None` for a plan from recordings.
    pub command: Option<String>,
    /// The GPUs.
    pub gpus: &'o [&'static GpuModel],
    /// The runs that were made on them.
    pub runs: &'o [PlanRun],
    /// The size for which to name the smallest GPU.
    pub wanted_size: Option<u64>,
    /// Whether to replay changes of the program, which takes most of the time.
    pub changes: bool,
}

/// The JSON of `oomscope plan`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct PlanReport {
    /// Name of the size, such as `BATCH`.
    pub name: String,
    /// The command, with the name of the size in braces; null for a plan from recordings.
    pub command: Option<String>,
    /// The recordings, in order of size.
    pub recordings: Vec<RecordingReport>,
    /// The PyTorch releases whose rules the replay followed.
    pub torch_version: String,
    /// The size for which the summary names the smallest GPU; null if none was given.
    #[serde(rename = "for_size")]
    pub wanted_size: Option<u64>,
    /// The GPUs, that with the least memory first.
    pub gpus: Vec<PlanGpu>,
    /// The runs that were made on these GPUs.
    pub runs: Vec<PlanRun>,
    /// Problems of the recordings, and reasons why predictions are estimates.
    pub warnings: Vec<Warning>,
}

/// One GPU of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanGpu {
    /// Its name on the command line.
    pub gpu: &'static str,
    /// Its name in the driver.
    pub product: &'static str,
    /// Its memory in bytes, without the CUDA context.
    pub usable_bytes: u64,
    /// The largest size for each change that applies; first the program as it is.
    pub cells: Vec<PlanCell>,
}

impl PlanGpu {
    /// The cell of `change`, which is not [`PlanChange::StateSharded`].
    pub fn cell(&self, change: PlanChange) -> Option<&PlanCell> {
        self.cells.iter().find(|cell| cell.change == change)
    }
}

/// Plans on which GPUs the recorded program runs, and how large it may be.
///
/// # Errors
/// One sentence: those of [`fit`].
pub fn plan(recordings: &[FitInput<'_, '_>], options: &PlanOptions<'_>) -> Result<PlanReport, String> {
    let mut gpus = options.gpus.to_vec();
    gpus.sort_by_key(|gpu| (gpu.usable_bytes(), gpu.name));
    let Some(largest) = gpus.last() else { return Err("give at least one GPU".to_owned()) };
    let fit_options = FitOptions {
        sizes: &[],
        capacity: Some(largest.usable_bytes()),
        gpu: Some(*largest),
        settings: None,
        multiple: 1,
    };
    let report = fit(recordings, &fit_options).map_err(|refusal| refusal.sentence)?;
    // The device with the highest peak decides.
    let peak_of = |device: &FitDevice| device.sizes.iter().map(|at| at.peak_reserved_bytes).max();
    let Some(device) = report.devices.iter().max_by_key(|device| (peak_of(device), Reverse(device.device))) else {
        return Err("the recordings have no device in common".to_owned());
    };
    if device.largest_safe.is_none() {
        return Err(report.summary().answer);
    }
    let device_recordings = DeviceRecordings::from_inputs(recordings, device.device);
    let fitted = FittedSizes::new(&device_recordings);
    let base = fitted.at(device.largest_recorded);
    let expandable =
        apply_option(base.base.device.snapshot(), &base.base.device.inferred().hypothesis, EXPANDABLE_SEGMENTS)?;
    let has_expandable = base.base.device.inferred().hypothesis.last_settings().expandable_segments;
    let settings_sizes = SettingsSizes { fitted: &fitted, device, runs: options.runs };
    let changed = if options.changes { changed_programs(&fitted, device.largest_recorded) } else { Vec::new() };
    let gpus = gpus.par_iter().map(|gpu| {
        let capacity = Some(gpu.usable_bytes());
        let as_recorded = Overrides { capacity, gpu: Some(*gpu), ..Overrides::default() };
        let as_is = settings_sizes.cell(gpu, PlanChange::AsIs, &as_recorded);
        let mut cells = vec![as_is];
        if !has_expandable {
            let overrides = Overrides { settings: Some(expandable.clone()), ..as_recorded.clone() };
            cells.push(settings_sizes.cell(gpu, PlanChange::ExpandableSegments, &overrides));
        }
        let start = cells[0].size.unwrap_or(device.largest_recorded).max(1);
        cells
            .extend(changed.par_iter().filter_map(|sizes| sizes.cell(device, &as_recorded, start)).collect::<Vec<_>>());
        PlanGpu { gpu: gpu.name, product: gpu.product, usable_bytes: gpu.usable_bytes(), cells }
    });
    let gpus = gpus.collect();
    Ok(PlanReport {
        name: options.name.to_owned(),
        command: options.command.clone(),
        recordings: report.recordings,
        torch_version: report.torch_version,
        wanted_size: options.wanted_size,
        gpus,
        runs: options.runs.to_vec(),
        warnings: report.warnings,
    })
}

/// The changes of the program that its recording suggests.
fn changed_programs<'f, 's, 'a>(
    fitted: &'f FittedSizes<'f, 's, 'a>,
    largest_recorded: u64,
) -> Vec<ChangedSizes<'f, 's, 'a>> {
    let fitted = fitted.at(largest_recorded);
    let sharded = RANKS.into_iter().filter_map(|ranks| ChangedSizes::sharded(fitted, ranks));
    ChangedSizes::checkpointed(fitted).into_iter().chain(sharded).collect()
}

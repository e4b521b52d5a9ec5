//! The JSON of `oomscope plan`, and what it is made from.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use itertools::Itertools as _;
use rayon::prelude::*;
use serde::Serialize;

use super::cell::{CheckpointedSizes, PlanCell, PlanChange, PlanRun, SettingsSizes, extrapolated_cell};
use crate::allocator::conf::EXPANDABLE_SEGMENTS;
use crate::allocator::device::GpuModel;
use crate::base::warning::{Code, Warning};
use crate::whatif::fit::{
    DeviceRecordings, FitInput, FitOptions, FittedSizes, RecordingReport, RefusalCode, fit, torch_version,
};
use crate::whatif::{Overrides, apply_option};

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
    fn new(gpu: &GpuModel, cells: Vec<PlanCell>) -> Self {
        Self { gpu: gpu.name, product: gpu.product, usable_bytes: gpu.usable_bytes(), cells }
    }

    /// The cell of `change`.
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
    let largest = gpus.last().ok_or("give at least one GPU")?;
    let (capacity, gpu) = (Some(largest.usable_bytes()), Some(*largest));
    let fit_options = FitOptions { sizes: &[], capacity, gpu, settings: None, multiple: 1 };
    let report = match fit(recordings, &fit_options) {
        Ok(report) => report,
        Err(refusal) if refusal.code == RefusalCode::DifferentPrograms => {
            let warning = Warning { code: Code::Unpaired, message: refusal.sentence };
            return extrapolate(recordings, &gpus, options, vec![warning]);
        }
        Err(refusal) => return Err(refusal.sentence),
    };
    // The device with the highest peak decides.
    let device = report.devices.iter().max_by_key(|device| {
        let peak = device.sizes.iter().map(|at| at.peak_reserved_bytes).max();
        (peak, Reverse(device.device))
    });
    let device = device.ok_or("the recordings have no device in common")?;
    if device.largest_safe.is_none() {
        return extrapolate(recordings, &gpus, options, report.warnings);
    }
    let device_recordings = DeviceRecordings::from_inputs(recordings, device.device);
    let fitted = FittedSizes::new(&device_recordings);
    let base = fitted.at(device.largest_recorded);
    let expandable =
        apply_option(base.base.device.snapshot(), &base.base.device.inferred().hypothesis, EXPANDABLE_SEGMENTS)?;
    let has_expandable = base.base.device.inferred().hypothesis.last_settings().expandable_segments;
    let settings_sizes = SettingsSizes { fitted: &fitted, device, runs: options.runs };
    let checkpointed = if options.changes { CheckpointedSizes::new(base) } else { None };
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
        cells.extend(checkpointed.as_ref().and_then(|sizes| sizes.cell(device, &as_recorded, start)));
        PlanGpu::new(gpu, cells)
    });
    Ok(PlanReport::new(recordings, gpus.collect(), options, report.warnings))
}

/// The plan of a program whose requests cannot be predicted: by the reserved bytes of its recordings.
fn extrapolate(
    recordings: &[FitInput<'_, '_>],
    gpus: &[&'static GpuModel],
    options: &PlanOptions<'_>,
    warnings: Vec<Warning>,
) -> Result<PlanReport, String> {
    let points = recordings.iter().filter_map(|input| {
        Some((input.size, input.study.devices().map(|device| device.peak().reserved_bytes).max()?))
    });
    let points: Vec<(u64, u64)> = points.collect::<BTreeMap<_, _>>().into_iter().collect();
    let rows: Option<Vec<PlanGpu>> =
        gpus.iter().map(|gpu| Some(PlanGpu::new(gpu, vec![extrapolated_cell(gpu, options.runs, &points)?]))).collect();
    let refusal = "the recordings have too little in common for a prediction, and their memory does not grow";
    Ok(PlanReport::new(recordings, rows.ok_or(refusal)?, options, warnings))
}

impl PlanReport {
    fn new(
        recordings: &[FitInput<'_, '_>],
        gpus: Vec<PlanGpu>,
        options: &PlanOptions<'_>,
        warnings: Vec<Warning>,
    ) -> Self {
        let mut recordings = recordings.to_vec();
        recordings.sort_by_key(|input| input.size);
        Self {
            name: options.name.to_owned(),
            command: options.command.clone(),
            torch_version: torch_version(&recordings),
            recordings: recordings.iter().map(RecordingReport::from_input).collect(),
            wanted_size: options.wanted_size,
            gpus,
            runs: options.runs.to_vec(),
            warnings,
        }
    }
}

/// Maximum number of runs for a GPU: one prediction, then corrections.
const MAX_RUNS_AS_IS: usize = 3;
/// Most runs of one GPU with expandable segments.
const MAX_RUNS_EXPANDABLE: usize = 2;

/// A run to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRun {
    /// Name of the GPU.
    pub gpu: &'static str,
    /// Whether to set `expandable_segments:True`.
    pub expandable_segments: bool,
    /// The size.
    pub size: u64,
}

impl PlanReport {
    /// The run to make next: first one for each GPU as it is, then corrections, then expandable segments where more
    /// should fit. `None` if nothing is left to confirm.
    pub fn next_run(&self) -> Option<NextRun> {
        let mut as_is = [1, MAX_RUNS_AS_IS].into_iter().cartesian_product(&self.gpus);
        as_is.find_map(|(max_runs, gpu)| self.run_of(gpu, PlanChange::AsIs, max_runs)).or_else(|| {
            let mut gpus = self.gpus.iter().filter(|gpu| {
                let [as_is, expandable] =
                    [PlanChange::AsIs, PlanChange::ExpandableSegments].map(|change| gpu.cell(change));
                expandable.and_then(|cell| cell.size) > as_is.and_then(|cell| cell.size)
            });
            gpus.find_map(|gpu| self.run_of(gpu, PlanChange::ExpandableSegments, MAX_RUNS_EXPANDABLE))
        })
    }

    /// The size to record next, on the GPU with most memory: the smallest answer that is at least twice the largest
    /// recorded size. A recording there shows kernels that smaller sizes do not run. `None` if no answer is that far.
    pub fn next_recording(&self) -> Option<u64> {
        let recorded = self.recordings.iter().map(|recording| recording.size).max()?;
        let answers = self.gpus.iter().filter_map(|gpu| gpu.cell(PlanChange::AsIs)?.size);
        answers.filter(|size| *size >= recorded.saturating_mul(2)).min()
    }

    fn run_of(&self, gpu: &PlanGpu, change: PlanChange, max_runs: usize) -> Option<NextRun> {
        let expandable_segments = change == PlanChange::ExpandableSegments;
        let recorded: Vec<u64> = self.recordings.iter().map(|recording| recording.size).collect();
        let runs = self.runs.iter().filter(|run| run.gpu == gpu.gpu && run.expandable_segments == expandable_segments);
        let above_recorded = runs.clone().filter(|run| recorded.iter().min().is_none_or(|size| *size <= run.size));
        let made = above_recorded.filter(|run| !recorded.contains(&run.size)).count();
        let answer = gpu.cell(change)?.size.filter(|size| *size > 0)?;
        let size = if runs.clone().any(|run| run.size == answer) {
            // Between it and the smallest that fails.
            let fails = runs.filter(|run| !run.fits && run.size > answer).map(|run| run.size).min()?;
            Some(answer + (fails - answer) / 2).filter(|size| *size > answer)?
        } else {
            answer
        };
        (made < max_runs).then_some(NextRun { gpu: gpu.gpu, expandable_segments, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::Sureness;

    fn cell(change: PlanChange, size: u64) -> PlanCell {
        PlanCell {
            change,
            size: Some(size),
            certainty: Sureness::Estimate,
            sure: Sureness::Estimate,
            location: None,
            other_locations: Vec::new(),
            unreserved_bytes: None,
            fails: None,
        }
    }

    fn gpu(gpu: &'static str, as_is: u64, expandable: u64) -> PlanGpu {
        let cells = vec![cell(PlanChange::AsIs, as_is), cell(PlanChange::ExpandableSegments, expandable)];
        PlanGpu { gpu, product: gpu, usable_bytes: 0, cells }
    }

    /// The next run after `runs`: GPU, size, whether it fits, and whether with expandable segments.
    fn next(runs: &[(&str, u64, bool, bool)]) -> (Option<(&'static str, u64, bool)>, Option<u64>) {
        let runs = runs.iter().map(|(gpu, size, fits, expandable_segments)| PlanRun {
            gpu: (*gpu).to_owned(),
            expandable_segments: *expandable_segments,
            size: *size,
            fits: *fits,
            is_certain: true,
            reserved_bytes: 0,
            snapshot: String::new(),
        });
        let report = PlanReport {
            name: "N".to_owned(),
            command: None,
            recordings: [4, 8].map(|size| RecordingReport { size, path: String::new() }).to_vec(),
            torch_version: String::new(),
            wanted_size: None,
            gpus: vec![gpu("t4", 15, 20), gpu("h100", 100, 100)],
            runs: runs.collect(),
            warnings: Vec::new(),
        };
        (report.next_run().map(|run| (run.gpu, run.size, run.expandable_segments)), report.next_recording())
    }

    /// Runs below every answer.
    const LEARNED: [(&str, u64, bool, bool); 3] =
        [("t4", 4, true, false), ("t4", 8, true, false), ("t4", 2, true, false)];

    /// The next run after [`LEARNED`] and `runs`.
    fn after(runs: &[(&'static str, u64, bool, bool)]) -> Option<(&'static str, u64, bool)> {
        next(&[&LEARNED[..], runs].concat()).0
    }

    #[test]
    fn each_gpu_has_a_run_then_corrections_then_one_with_expandable_segments() {
        let (t4, h100) = (("t4", 15, true, false), ("h100", 100, true, false));
        assert_eq!(next(&LEARNED), (Some(("t4", 15, false)), Some(100)));
        assert_eq!(after(&[t4]), Some(("h100", 100, false)));
        assert_eq!(after(&[t4, h100]), Some(("t4", 20, true)));
        // Between what fits and what fails.
        assert_eq!(after(&[("t4", 25, false, false), ("t4", 21, false, false), h100]), Some(("t4", 15, false)));
        assert_eq!(after(&[("t4", 21, false, false), t4, h100]), Some(("t4", 18, false)));
        assert_eq!(after(&[("t4", 8, false, false), ("t4", 21, false, false), t4, h100]), Some(("t4", 18, false)));
        assert_eq!(after(&[("t4", 16, false, false), t4, h100]), Some(("t4", 20, true)));
        let three = [("t4", 25, false, false), ("t4", 21, false, false), ("t4", 19, false, false), h100];
        assert_eq!(after(&three), Some(("t4", 20, true)));
        let expandable = [("t4", 20, false, true), ("t4", 21, false, true)];
        assert_eq!(after(&[&three[..], &expandable].concat()), None);
    }
}

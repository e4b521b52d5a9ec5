//! `oomscope plan`: which GPU, how large, with which change.
//!
//! From recordings, or by dry runs: a few sizes on the GPU with most memory, then the largest size of each GPU on that
//! GPU ([`runs`] makes and keeps them), until [`PlanReport::next_run`] has nothing to confirm or [`runs::MAX_RUNS`] are
//! made. A serving engine is started on each GPU and on
//! several of them ([`serving`]).

mod args;
mod runs;
mod serving;

use std::path::Path;

use anyhow::{anyhow, bail};
use itertools::Itertools as _;

pub(super) use self::args::Plan;
use self::runs::Runs;
use super::dry_run::find_placeholder;
use super::exit::Exit;
use super::inputs::{self, SizedRecordings};
use crate::allocator::device::GpuModel;
use crate::output::report;
use crate::whatif::plan::{PlanOptions, PlanReport, PlanRun, plan};

/// Most recordings at larger sizes than those of `--sizes`.
const MAX_FURTHER_RECORDINGS: usize = 2;

fn plan_from(recordings: &SizedRecordings, options: &PlanOptions<'_>) -> anyhow::Result<PlanReport> {
    recordings.study(|inputs| plan(inputs, options))?.map_err(|error| anyhow!(error))
}

pub(super) fn run(args: &Plan) -> anyhow::Result<Exit> {
    if args.recordings.is_empty() == args.command.is_empty() {
        bail!("give recordings, such as 4=b4.pickle 8=b8.pickle, or a command: -- python train.py --batch {{BATCH}}");
    }
    let gpus = args.gpus();
    if let Some(engine) = serving::engine_of(&args.command).filter(|_| find_placeholder(&args.command).is_err()) {
        return serving::run(args, engine, &gpus);
    }
    let output = args.output.open()?;
    let mut recordings = SizedRecordings::default();
    for (size, path) in &args.recordings {
        let path = inputs::single_snapshot(path)?;
        inputs::refuse_output_over_input(&path, args.output.output.as_deref())?;
        recordings.add(*size, &path)?;
    }
    let (name, runs) = if args.command.is_empty() {
        ("size".to_owned(), Vec::new())
    } else {
        let name = find_placeholder(&args.command)?;
        let runs = make_runs(args, &name, &gpus, &mut recordings)?;
        (name, runs)
    };
    let report = plan_from(&recordings, &PlanOptions { changes: true, ..args.options(&name, &gpus, &runs) })?;
    output.write_answer(args.output.format(), &report, report::plan)
}

/// Makes the dry runs of a plan, and adds those to `recordings` from which sizes are predicted.
fn make_runs(
    args: &Plan,
    name: &str,
    gpus: &[&'static GpuModel],
    recordings: &mut SizedRecordings,
) -> anyhow::Result<Vec<PlanRun>> {
    let Some(reference) = gpus.iter().copied().max_by_key(|gpu| gpu.usable_bytes()) else {
        bail!("give at least one GPU");
    };
    let mut runs = Runs::open(&args.runs, &args.command, name)?;
    for size in &args.sizes {
        if let Some(run) = runs.make(reference.name, *size, false)?.filter(|run| run.fits) {
            recordings.add(run.size, Path::new(&run.snapshot))?;
        }
    }
    if recordings.len() < 2 {
        let (sizes, gpu) = (args.sizes.iter().join(", "), reference.name);
        bail!(
            "fewer than two of the first sizes ({sizes}) fit on {gpu}, which has the most memory of these GPUs: give \
             smaller ones with --sizes"
        );
    }
    let mut further = 0;
    loop {
        let made = runs.made().to_vec();
        let report = plan_from(recordings, &args.options(name, gpus, &made))?;
        let next = report.next_recording().filter(|_| further < MAX_FURTHER_RECORDINGS);
        if let Some(size) = next {
            further += 1;
            match runs.make(reference.name, size, false)? {
                Some(run) if run.fits => recordings.add(size, Path::new(&run.snapshot))?,
                _ => further = MAX_FURTHER_RECORDINGS,
            }
            continue;
        }
        let Some(next) = report.next_run() else { break };
        if runs.make(next.gpu, next.size, next.expandable_segments)?.is_none() {
            break;
        }
    }
    Ok(runs.made().to_vec())
}

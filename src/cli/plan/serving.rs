//! `oomscope plan -- vllm serve DIR`: a start of the engine on each GPU, and on several of them.

use itertools::Itertools as _;
use std::ffi::OsString;
use std::fs;

use anyhow::{Context, bail};
use serde_json::json;

use super::args::Plan;
use crate::allocator::device::GpuModel;
use crate::analysis::{DryRunVerdict, ServingPlanReport, ServingPlanRow};
use crate::cli::dry_run::{AnalyzedRun, DryRunOptions, Intervention};
use crate::cli::exit::{Exit, print_stderr};
use crate::cli::run::{CommandOutput, record};
use crate::output::report;
use crate::stacks::engines::Engine;

/// Numbers of GPUs that share the model. An engine without the option has a process for each; a dry run starts one.
const GPU_COUNTS: [u64; 4] = [1, 2, 4, 8];
/// Maximum number of GPU models: a start takes a minute.
const MAX_MODELS: usize = 4;

/// The engine that `command` starts, by its words.
pub(super) fn engine_of(command: &[OsString]) -> Option<&'static Engine> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    Engine::of_command(&words)
}

pub(super) fn run(args: &Plan, engine: &Engine, models: &[&'static GpuModel]) -> anyhow::Result<Exit> {
    if models.len() > MAX_MODELS {
        bail!("name at most {MAX_MODELS} GPUs with --gpus: an engine starts on each of them");
    }
    let output = args.output.open()?;
    fs::create_dir_all(&args.runs).with_context(|| format!("{}: cannot be created", args.runs.display()))?;
    let counts = if engine.gpus_option.is_some() { &GPU_COUNTS[..] } else { &GPU_COUNTS[..1] };
    let starts = models.iter().cartesian_product(counts);
    let rows = starts.map(|(model, gpus)| start(args, engine, model, *gpus)).collect::<anyhow::Result<_>>()?;
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let report = ServingPlanReport { command: words.join(" "), rows };
    output.write_answer(args.output.format(), &report, report::serving_plan)
}

/// Starts the engine on `gpus` of a model, with requests as long as the memory allows if the engine finds out.
fn start(args: &Plan, engine: &Engine, gpu: &GpuModel, gpus: u64) -> anyhow::Result<ServingPlanRow> {
    let directory = args.runs.join(format!("{}-{gpus}", gpu.name));
    let log = directory.with_extension("txt");
    let dry_run = DryRunOptions::on_gpu(gpu.name, None)?;
    let gpus_option = engine.gpus_option.map(|option| (option, json!(gpus)));
    let longest = engine.longest_option.map(|(option, value)| (option, json!(value)));
    let options: Vec<_> = gpus_option.into_iter().chain(longest).collect();
    print_stderr(&format!("on {gpus} x {}: the output is in {}", gpu.name, log.display()));
    let prepared = dry_run.prepare(Some(&directory), Intervention::with_engine_options(options))?;
    let run = AnalyzedRun::read(&record(&args.command, prepared, CommandOutput::Log(&log))?)?;
    let (verdict, reason) = match &run.job.dry_run {
        Some(job) => (job.verdict, job.reason.to_string()),
        None => (DryRunVerdict::NoVerdict, format!("no GPU memory was used: see {}", log.display())),
    };
    let starts = matches!(verdict, DryRunVerdict::WouldFit | DryRunVerdict::MayFit);
    Ok(ServingPlanRow {
        gpu: gpu.name.to_owned(),
        gpus,
        usable_bytes: gpu.usable_bytes(),
        verdict,
        reason: (!starts).then_some(reason),
        serving: run.serving().cloned(),
        output: log.display().to_string(),
    })
}

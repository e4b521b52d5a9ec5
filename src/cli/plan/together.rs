//! `oomscope plan --together`: several processes on one GPU.

use anyhow::anyhow;

use super::args::Plan;
use crate::cli::exit::Exit;
use crate::cli::inputs;
use crate::cli::output::Output;
use crate::output::report;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study};
use crate::whatif::together::{TogetherInput, fit_together};

pub(super) fn run(args: &Plan) -> anyhow::Result<Exit> {
    let gpus = args.gpus();
    let mut read: Vec<(String, Snapshot)> = Vec::new();
    for path in &args.together {
        let path = inputs::single_snapshot(path)?;
        args.output.output.as_deref().map_or(Ok(()), |output| inputs::refuse_output_over_input(&path, output))?;
        read.push((path.display().to_string(), inputs::read_one(&path)?));
    }
    let output = Output::open(args.output.output.as_deref())?;
    let studies: Vec<Study<'_>> = read.iter().map(|(_, snapshot)| Study::new(snapshot, Scope::default())).collect();
    let processes = read.iter().zip(&studies);
    let processes: Vec<TogetherInput<'_, '_>> =
        processes.map(|((path, _), study)| TogetherInput { path, study }).collect();
    let report = fit_together(&processes, &gpus).map_err(|error| anyhow!(error))?;
    output.write_answer(args.output.format, &report, report::together)?;
    Ok(Exit::Success)
}

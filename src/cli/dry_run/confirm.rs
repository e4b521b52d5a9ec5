//! `--confirm` of `analyze` and `whatif`: runs a recorded job again in dry runs, as recorded and then with the remedies
//! that a replay recommends, on a GPU with the memory that the job had.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::Args;
use serde::Serialize;

use super::analyzed_run::AnalyzedRun;
use super::args::DryRun;
use super::trials::{OutsideRemedy, Trials, remedies_without_size};
use crate::allocator::device::{GPUS, GpuModel};
use crate::analysis::{TrialOutcome, TrialsReport};
use crate::base::units::MIB;
use crate::cli::exit::print_stderr;
use crate::cli::run::create_numbered;
use crate::output::document::Document;
use crate::output::report;

/// The recorded job.
#[derive(Debug, Args)]
pub(in crate::cli) struct ConfirmArgs {
    /// Then run COMMAND, the recorded job, in dry runs: as recorded, and with the best remedies; the last option
    ///
    /// The dry runs have the GPU memory that the job had. They need what `oomscope dry-run` needs: Linux and a PyTorch
    /// built for CUDA, but no GPU.
    // Not `last`: a file after `--` is a snapshot.
    #[arg(long, num_args = 1.., allow_hyphen_values = true, value_name = "COMMAND")]
    confirm: Vec<OsString>,
}

impl ConfirmArgs {
    pub(in crate::cli) fn is_given(&self) -> bool {
        !self.confirm.is_empty()
    }

    /// The command and its arguments.
    fn command(&self) -> anyhow::Result<&[OsString]> {
        match self.confirm.as_slice() {
            [dashes, command @ ..] if dashes == "--" && !command.is_empty() => Ok(command),
            [word, ..] if word.to_string_lossy().starts_with('-') && word != "--" => bail!(
                "--confirm is the last option: what follows is the command, and this one starts with {}",
                word.display()
            ),
            [word, ..] if word != "--" => Ok(&self.confirm),
            _ => bail!("--confirm needs the command of the recorded job, such as -- python train.py"),
        }
    }
}

/// A report with the runs of `--confirm`, for JSON.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Confirmed<'r, R> {
    #[serde(flatten)]
    pub(in crate::cli) report: &'r R,
    /// The dry runs of `--confirm`; absent without it.
    pub(in crate::cli) confirmed: TrialsReport,
}

impl<R> Confirmed<'_, R> {
    /// The page of the report, with the runs at its end.
    pub(in crate::cli) fn lay_out(&self, page: impl FnOnce(&R) -> Document) -> Document {
        let mut document = page(self.report);
        report::add_trials(&mut document, &self.confirmed);
        document
    }
}

/// Runs the job that `snapshot` recorded. `settings` are to be tried; if empty, the remedies of the
/// analysis are. `capacity` is the device memory in bytes, in place of the recorded one. Returns the runs.
///
/// # Errors
/// Returns an error if the file is standard input, or shows neither a failure nor the device memory.
pub(in crate::cli) fn confirm(
    args: &ConfirmArgs,
    snapshot: &Path,
    settings: &[String],
    capacity: Option<u64>,
) -> anyhow::Result<TrialsReport> {
    let name = snapshot.display();
    if snapshot == Path::new("-") {
        bail!("--confirm reads the snapshot twice; give a file in place of standard input");
    }
    let recorded = AnalyzedRun::read(&[PathBuf::from(snapshot)], None)?;
    let (gpu, total_bytes) = recorded_gpu(&recorded, capacity)
        .ok_or_else(|| anyhow!("{name}: --confirm needs a failed request, or --capacity"))?;
    let job = DryRun::for_recording(gpu, total_bytes, args.command()?)?;
    let remedies = match settings {
        [] => remedies_without_size(&recorded),
        _ => settings.iter().cloned().map(OutsideRemedy::Settings).collect(),
    };
    let directory = create_numbered("oomscope-dry-run")?;
    print_stderr(&format!("dry runs on {}, in {}", job.options.assumed_gpu().name(), directory.display()));
    let mut trials = Trials::new(&job, &directory, &recorded);
    match trials.run(&OutsideRemedy::AsRecorded)? {
        TrialOutcome::Fails | TrialOutcome::FailsLater if remedies.is_empty() => {
            print_stderr("no remedy is known that needs no change to the program");
        }
        TrialOutcome::Fails | TrialOutcome::FailsLater => trials.run_all(&remedies)?,
        TrialOutcome::Ends | TrialOutcome::MayEnd => print_stderr(
            "as recorded the job runs to its end in a dry run, so dry runs cannot confirm a remedy: its failure may depend \
             on values of the GPU, other processes or workspaces of libraries",
        ),
        TrialOutcome::Unknown | TrialOutcome::NotInEffect => {}
    }
    Ok(trials.finish())
}

/// The model of the recorded GPU, and the total memory that leaves to a process what the job had: `capacity`, else the
/// memory within reach at the last failure.
fn recorded_gpu(run: &AnalyzedRun, capacity: Option<u64>) -> Option<(&'static GpuModel, u64)> {
    let reach = run.last_failure().map(|oom| oom.reserved_bytes + oom.device_free_bytes);
    let recorded = run
        .job
        .snapshots
        .iter()
        .filter_map(|snapshot| snapshot.recorder.as_ref())
        .flat_map(|recorder| &recorder.devices)
        .next();
    let is_recorded = |gpu: &&GpuModel| recorded.is_some_and(|device| device.name == gpu.product);
    let total = recorded.map(|device| device.total_bytes).or(capacity).or(reach)?;
    // A model that is not known has the properties of the one with the most similar memory.
    let similar = || GPUS.iter().min_by_key(|gpu| gpu.total_bytes().abs_diff(total));
    let gpu = GPUS.iter().find(is_recorded).or_else(similar)?;
    let with_context = |reach: u64| (reach + gpu.context_mib * MIB).next_multiple_of(MIB);
    Some((gpu, capacity.or(reach.map(with_context))?))
}

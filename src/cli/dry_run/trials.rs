//! After a failure, runs the command again with remedies that need no change to the program: `--try`.

use itertools::Itertools as _;
use std::path::Path;

use super::analyzed_run::AnalyzedRun;
use super::args::DryRun;
use super::engine_remedies::{OutsideRemedy, engine_remedies, further_starts, option_words, with_shorter_requests};
use super::options::Intervention;
use crate::allocator::conf::{ConfChange, shell_assignment};
use crate::analysis::{DeviceReport, DryRunReason, DryRunVerdict, TrialOutcome, TrialReport, TrialsReport};
use crate::cli::exit::print_stderr;
use crate::cli::run::{CommandOutput, Recorded, record};
use crate::whatif::program::ProgramChange;

/// Maximum number of runs that try allocator settings: the best two of the replay, so that other remedies get their turn.
const MAX_SETTINGS: usize = 2;

/// The directory for code that a program compiles, below that of the run: a later start finds it there.
pub(super) const CACHE: &str = "cache";

/// The run that failed, and where to try its remedies.
struct Trials<'r> {
    args: &'r DryRun,
    directory: &'r Path,
    /// The settings string of the failed run; `None` if the release does not record it.
    settings: Option<String>,
    /// Number of requests that the failed run had served.
    served: usize,
    /// The runs so far, with that which failed.
    runs: Vec<TrialReport>,
    /// Number of them that this made.
    made: usize,
}

/// Runs the command again with each remedy, if a request of the first run failed; a serving engine also without `--try`,
/// where its answer needs another start. The first run was `recorded` in `directory`; `log` is its output if it was not
/// printed.
pub(super) fn run(
    args: &DryRun,
    directory: &Path,
    recorded: &Recorded,
    log: Option<&Path>,
) -> anyhow::Result<TrialsReport> {
    let first = AnalyzedRun::read(recorded)?;
    let settings = first.job.snapshots.first().and_then(|snapshot| snapshot.settings_string.clone());
    let mut trials = Trials { args, directory, settings, served: first.served, runs: Vec::new(), made: 0 };
    let as_it_is = trials.judge(recorded.end.code(), &first);
    trials.runs.push(TrialReport { output: log.map(|log| log.display().to_string()), ..as_it_is });
    if let Some(serving) = first.serving() {
        let options = if args.tries { engine_remedies(serving) } else { Vec::new() };
        let mut shorter = Vec::new();
        for remedy in further_starts(serving).into_iter().chain(options) {
            trials.run(&remedy)?;
            let tried = trials.runs.last().and_then(|run| run.serving.as_ref());
            shorter.extend(tried.and_then(|tried| with_shorter_requests(serving, &remedy, tried)));
        }
        if let Some((_, remedy)) = shorter.into_iter().max_by_key(|(length, _)| *length) {
            trials.run(&remedy)?;
        }
        return Ok(trials.finish());
    }
    if !args.tries || !first.has_failed() {
        return Ok(trials.finish());
    }
    // A program that sets its own settings gets no further ones.
    let mut are_settings_its_own = false;
    for remedy in remedies_of(&first) {
        if !are_settings_its_own || !matches!(remedy, OutsideRemedy::Settings(_)) {
            are_settings_its_own |= trials.run(&remedy)? == TrialOutcome::NotInEffect;
        }
    }
    if trials.made == 0 {
        print_stderr(
            "--try: no allocator setting serves the request in a replay, and the optimizer is not the reason; \
             oomscope fit -- COMMAND with {BATCH} in place of the size finds the largest that fits",
        );
    }
    Ok(trials.finish())
}

/// The options that `settings` sets.
fn option_names(settings: &str) -> Vec<&str> {
    settings.split(',').filter_map(|option| option.split_once(':')).map(|(name, _)| name).collect()
}

/// The remedies for the failure of `run`, the best first.
fn remedies_of(run: &AnalyzedRun) -> Vec<OutsideRemedy> {
    let Some(device) = run.job.devices().find(|device| device.oom_count > 0) else { return Vec::new() };
    let Some(oom) = device.ooms.last() else { return Vec::new() };
    let serving = oom.remedies.iter().filter(|remedy| remedy.avoids_oom);
    // A forecast of a later failure may be wrong, and the run shows it.
    let serving = serving.sorted_by_key(|remedy| remedy.then.fails_again());
    // Two sizes of one option give much the same.
    let serving = serving.unique_by(|remedy| (remedy.without.clone(), option_names(&remedy.settings)));
    let settings = serving.take(MAX_SETTINGS).map(|remedy| OutsideRemedy::Settings(remedy.settings_change()));
    let is_foreach = device.changes.iter().any(|row| row.change == ProgramChange::OptimizerForeach);
    let by_parameter = (oom.is_in_optimizer() || is_foreach).then_some(OutsideRemedy::StepByParameter);
    settings.chain(by_parameter).collect()
}

impl Trials<'_> {
    /// Runs the command with `remedy`, and prints how it ends.
    fn run(&mut self, remedy: &OutsideRemedy) -> anyhow::Result<TrialOutcome> {
        self.made += 1;
        let directory = self.directory.join(format!("try-{}", self.made));
        let log = directory.with_extension("txt");
        print_stderr(&format!("with {}: the output is in {}", remedy.describe(), log.display()));
        let (intervention, settings) = self.changed(remedy);
        let run_directory = self.args.options.prepare(Some(&directory), intervention)?;
        let recorded = record(&self.args.command, run_directory, CommandOutput::Log(&log))?;
        let run = AnalyzedRun::read(&recorded)?;
        let is_applied = run.job.snapshots.iter().all(|snapshot| match (remedy, &snapshot.settings_string) {
            (OutsideRemedy::Settings(_), Some(in_effect)) => settings.as_ref() == Some(in_effect),
            _ => true,
        });
        let mut trial = if is_applied {
            self.judge(recorded.end.code(), &run)
        } else {
            TrialReport { outcome: TrialOutcome::NotInEffect, ..TrialReport::default() }
        };
        trial.remedy = Some(remedy.describe());
        trial.output = Some(log.display().to_string());
        let copy = match remedy {
            OutsideRemedy::Settings(change) => Some(shell_assignment(change, self.settings.as_deref())),
            OutsideRemedy::EngineOptions(options) => Some(option_words(options)),
            OutsideRemedy::StepByParameter | OutsideRemedy::LaterStart => None,
        };
        trial.copy = copy.filter(|_| trial.outcome.is_end());
        let outcome = trial.outcome;
        self.runs.push(trial);
        Ok(outcome)
    }

    fn finish(self) -> TrialsReport {
        let gpu = &self.args.options.machine;
        TrialsReport { gpu: gpu.name(), usable_bytes: gpu.usable_bytes(), runs: self.runs }
    }

    /// The changes from outside the program, and the settings string if it is known.
    fn changed(&self, remedy: &OutsideRemedy) -> (Intervention, Option<String>) {
        let settings = match remedy {
            OutsideRemedy::Settings(change) => {
                Some(ConfChange::parse(change).apply_to(self.settings.as_deref().unwrap_or_default()))
            }
            _ => self.settings.clone(),
        };
        let mut change = settings.as_deref().map(Intervention::with_settings).unwrap_or_default();
        match remedy {
            OutsideRemedy::Settings(_) => {}
            OutsideRemedy::StepByParameter => change.steps_by_parameter = true,
            OutsideRemedy::LaterStart => change.environment.extend(compiled_code(self.directory)),
            OutsideRemedy::EngineOptions(options) => {
                change = Intervention::with_engine_options(options.iter().cloned());
            }
        }
        (change, settings)
    }

    fn judge(&self, code: u8, run: &AnalyzedRun) -> TrialReport {
        let others = TrialReport { serving: run.serving().cloned(), ..TrialReport::default() };
        if let Some(oom) = run.last_failure().filter(|_| run.has_failed()) {
            let is_later = run.served > self.served;
            let outcome = if is_later { TrialOutcome::FailsLater } else { TrialOutcome::Fails };
            let (location, requested_bytes) = (Some(oom.location.clone()), Some(oom.requested_bytes));
            return TrialReport { outcome, requested_bytes, location, ..others };
        }
        let Some(reserved) = run.job.devices().map(DeviceReport::peak_on_device).max() else {
            let reason = Some("no process used CUDA".to_owned());
            return TrialReport { outcome: TrialOutcome::Unknown, reason, ..others };
        };
        let (outcome, reason) = match &run.job.dry_run {
            Some(job) => {
                let outcome = match job.verdict {
                    DryRunVerdict::WouldFit => TrialOutcome::Ends,
                    DryRunVerdict::MayFit => TrialOutcome::MayEnd,
                    DryRunVerdict::WouldNotFit if matches!(job.reason, DryRunReason::NotStarted(_)) => {
                        TrialOutcome::Fails
                    }
                    DryRunVerdict::NoVerdict | DryRunVerdict::DidNotFinish | DryRunVerdict::WouldNotFit => {
                        TrialOutcome::Unknown
                    }
                };
                (outcome, Some(job.reason.to_string()))
            }
            None if code == 0 => (TrialOutcome::Ends, None),
            None => (TrialOutcome::Unknown, Some(format!("exit code {code}, without an out-of-memory error"))),
        };
        let reason = reason.filter(|_| outcome != TrialOutcome::Ends);
        let headroom = self.args.options.machine.usable_bytes().saturating_sub(reserved);
        let headroom_bytes = matches!(outcome, TrialOutcome::Ends | TrialOutcome::MayEnd).then_some(headroom);
        TrialReport { outcome, headroom_bytes, reason, ..others }
    }
}

/// The variable with the directory for code that a program compiles, below that of its first run.
pub(super) fn compiled_code(directory: &Path) -> Option<(&'static str, String)> {
    let absolute = directory.canonicalize().ok()?;
    Some(("OOMSCOPE_CACHE", absolute.join(CACHE).to_str()?.to_owned()))
}

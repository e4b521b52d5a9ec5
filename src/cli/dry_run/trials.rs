//! `--try`: after a failure, runs the command again with remedies that need no change to the program, and prints how
//! each run ends.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::args::{DryRun, Intervention};
use super::placeholder;
use crate::allocator::conf::{ConfChange, shell_assignment};
use crate::allocator::trace_action::Action;
use crate::analysis::{Options, SnapshotReport, analyze};
use crate::base::units::{count, size};
use crate::cli::exit::print_stderr;
use crate::cli::inputs;
use crate::cli::run::{CommandEnd, record_to_log};
use crate::whatif::ForecastVerdict;
use crate::whatif::program::ProgramChange;

/// Maximum number of runs after the first.
const MAX_RUNS: usize = 5;
/// Maximum number of runs that try allocator settings: the best two of the replay, so that other remedies get their turn.
const MAX_SETTINGS: usize = 2;
/// The variable's names: that of PyTorch 2.9 and later, and that of all releases.
const VARIABLES: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];

/// A remedy that needs no change to the program.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Remedy {
    /// Options to set, and `KEY:default` for one to remove.
    Settings(String),
    /// `foreach=False` in every optimizer.
    StepByParameter,
    /// A smaller size in place of `{name}`.
    Size { name: String, size: u64 },
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// It runs to its end. Each device has at least this many bytes that were not reserved at any time.
    Ends { spare_bytes: u64 },
    /// A request fails at this line. `is_later`: more requests were served than in the first run.
    Fails { line: String, bytes: u64, is_later: bool },
    /// It ends with another error, with this exit code.
    OtherError(u8),
    /// No process used CUDA.
    NoCuda,
    /// The program chooses its allocator settings itself.
    SettingsNotInEffect,
}

/// A snapshot of a run.
struct Recorded {
    report: SnapshotReport,
    /// Number of requests that were served.
    served: usize,
}

impl Recorded {
    fn read_all(snapshots: &[PathBuf]) -> anyhow::Result<Vec<Self>> {
        let read = |path: &PathBuf| {
            let name = path.display().to_string();
            let snapshot = inputs::read_one(path).with_context(|| name.clone())?;
            let report = analyze(&snapshot, &name, 0, Options::default());
            let served = snapshot.devices().map(|device| device.indexes_with_action(Action::Alloc).count()).sum();
            Ok(Self { report, served })
        };
        snapshots.iter().map(read).collect()
    }

    fn has_failure(&self) -> bool {
        self.report.devices.iter().any(|device| device.oom_count > 0)
    }
}

/// The run that failed, and where to try its remedies.
struct Trials<'r> {
    args: &'r DryRun,
    directory: &'r Path,
    /// The settings string of the failed run.
    settings: String,
    /// Number of requests that the failed process had served.
    served: usize,
    runs: usize,
}

/// Runs the command again with each remedy, if a request of the first run failed. `directory` and `snapshots` are those
/// of the first run.
pub(super) fn run(args: &DryRun, directory: &Path, snapshots: &[PathBuf]) -> anyhow::Result<()> {
    let recorded = Recorded::read_all(snapshots)?;
    let Some(failed) = recorded.iter().find(|recorded| recorded.has_failure()) else { return Ok(()) };
    let settings = failed.report.settings_string.clone().unwrap_or_default();
    let mut trials = Trials { args, directory, settings, served: failed.served, runs: 0 };
    let mut are_settings_its_own = false;
    for remedy in remedies_without_size(&failed.report) {
        if are_settings_its_own && matches!(remedy, Remedy::Settings(_)) {
            continue;
        }
        let outcome = trials.run(&remedy)?;
        are_settings_its_own |= outcome == Outcome::SettingsNotInEffect;
        if let (Remedy::Settings(change), Outcome::Ends { .. }) = (&remedy, outcome) {
            print_stderr(&format!("to apply it: {}", shell_assignment(change, Some(&trials.settings))));
        }
    }
    if let Some((name, size)) = &args.size {
        let halves = std::iter::successors(Some(*size / 2), |size| Some(*size / 2)).take_while(|size| *size > 0);
        for size in halves.take(MAX_RUNS - trials.runs) {
            if let Outcome::Ends { .. } = trials.run(&Remedy::Size { name: name.clone(), size })? {
                break; // smaller sizes fit as well
            }
        }
    }
    if trials.runs == 0 {
        print_stderr(
            "--try: no allocator setting serves the request in a replay, and the optimizer is not the reason; \
             --size NAME=N tries smaller sizes",
        );
    }
    Ok(())
}

/// The remedies for the failure of `report` other than smaller sizes, the best first.
fn remedies_without_size(report: &SnapshotReport) -> Vec<Remedy> {
    let Some(device) = report.devices.iter().find(|device| device.oom_count > 0) else { return Vec::new() };
    let Some(oom) = device.ooms.last() else { return Vec::new() };
    let fails_again = |forecast: &Option<ForecastVerdict>| matches!(forecast, Some(ForecastVerdict::FailsAgain { .. }));
    let serving = oom.remedies.iter().filter(|remedy| remedy.avoids_oom && !fails_again(&remedy.forecast));
    let settings = serving.map(|remedy| {
        let removed = remedy.without.map(|option| format!("{option}:default"));
        let set = (!remedy.settings.is_empty()).then(|| remedy.settings.clone());
        Remedy::Settings(removed.into_iter().chain(set).collect::<Vec<_>>().join(","))
    });
    let mut remedies: Vec<Remedy> = settings.take(MAX_SETTINGS).collect();
    if oom.is_in_optimizer() || device.changes.iter().any(|row| row.change == ProgramChange::OptimizerForeach) {
        remedies.push(Remedy::StepByParameter);
    }
    remedies
}

impl Trials<'_> {
    /// Runs the command with `remedy`, and prints how it ends.
    fn run(&mut self, remedy: &Remedy) -> anyhow::Result<Outcome> {
        self.runs += 1;
        let directory = self.directory.join(format!("try-{}", self.runs));
        let log = directory.with_extension("txt");
        let (command, intervention, settings) = self.changed(remedy)?;
        let run_directory = self.args.prepare(Some(&directory), intervention)?;
        let (end, snapshots) = record_to_log(&command, run_directory, &log)?;
        let recorded = Recorded::read_all(&snapshots)?;
        let differs = |in_effect: &String| settings.as_ref().is_some_and(|settings| settings != in_effect);
        let outcome = if recorded.iter().any(|recorded| recorded.report.settings_string.as_ref().is_some_and(differs)) {
            Outcome::SettingsNotInEffect
        } else {
            self.judge(end, &recorded)
        };
        print_stderr(&format!("with {}: {}; see {}", remedy.describe(), outcome.describe(), log.display()));
        Ok(outcome)
    }

    /// The command with `remedy`, what else changes from outside, and the settings string if that changes.
    fn changed(&self, remedy: &Remedy) -> anyhow::Result<(Vec<OsString>, Intervention, Option<String>)> {
        let mut intervention = Intervention::default();
        let mut settings = None;
        match remedy {
            Remedy::Settings(change) => {
                let changed = ConfChange::parse(change).apply_to(&self.settings);
                intervention.environment = VARIABLES.map(|name| (name, changed.clone())).to_vec();
                settings = Some(changed);
            }
            Remedy::StepByParameter => intervention.steps_by_parameter = true,
            Remedy::Size { name, size } => {
                return Ok((placeholder::fill(&self.args.command, name, *size), intervention, settings));
            }
        }
        Ok((self.args.first_command()?, intervention, settings))
    }

    fn judge(&self, end: CommandEnd, recorded: &[Recorded]) -> Outcome {
        let failed = recorded.iter().find(|recorded| recorded.has_failure());
        let devices = || recorded.iter().flat_map(|recorded| &recorded.report.devices);
        let oom = failed.and_then(|failed| failed.report.devices.iter().find_map(|device| device.ooms.last()));
        if let (Some(failed), Some(oom)) = (failed, oom) {
            let is_later = failed.served > self.served;
            return Outcome::Fails { line: oom.location.label(), bytes: oom.requested_bytes, is_later };
        }
        match (end.code(), devices().map(|device| device.peak.reserved_bytes).max()) {
            (0, Some(reserved)) => {
                Outcome::Ends { spare_bytes: self.args.assumed_gpu().usable_bytes().saturating_sub(reserved) }
            }
            (0, None) => Outcome::NoCuda,
            (code, _) => Outcome::OtherError(code),
        }
    }
}

impl Remedy {
    fn describe(&self) -> String {
        match self {
            Self::Settings(change) => change.clone(),
            Self::StepByParameter => "foreach=False in the optimizer".to_owned(),
            Self::Size { name, size } => format!("{name} = {}", count(*size)),
        }
    }
}

impl Outcome {
    fn describe(&self) -> String {
        match self {
            Self::Ends { spare_bytes } => format!("runs to its end, {} headroom", size(*spare_bytes)),
            Self::Fails { line, bytes, is_later } => {
                let later = if *is_later { "fails later, at" } else { "fails at" };
                format!("{later} {line} ({} requested)", size(*bytes))
            }
            Self::OtherError(code) => format!("not known: exit code {code}, without an out-of-memory error"),
            Self::NoCuda => "not known: no process used CUDA".to_owned(),
            Self::SettingsNotInEffect => "not in effect: the program sets its own; change it there".to_owned(),
        }
    }
}

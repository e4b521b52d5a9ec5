//! `--fit NAME=N,M`: makes dry runs at several sizes until it has found the largest that fits.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::anyhow;

use super::args::DryRun;
use super::bracket::{Bracket, SizeChooser, SizeStep};
use super::fit_sizes::FitSizes;
use super::options::Intervention;
use super::size_run::SizeRun;
use super::{placeholder, written_files};
use crate::analysis::{SizeRunReport, SizeSearchReport};
use crate::base::units::count;
use crate::cli::exit::{Exit, print_stderr};
use crate::cli::inputs;
use crate::cli::output::Output;
use crate::cli::run::create_numbered;
use crate::output::report;
use crate::study::{Scope, Study};
use crate::whatif::fit::{FitInput, FitOptions, FitReport, fit};

/// Maximum number of dry runs.
const MAX_RUNS: usize = 12;
/// Maximum number of them to find the largest size that fits in the worst case.
const MAX_WORST_CASE_CHECKS: usize = 5;

/// The dry runs of one command.
struct SizeSearch<'r> {
    args: &'r DryRun,
    fit_sizes: &'r FitSizes,
    directory: PathBuf,
    /// The sizes that may be the answer.
    step: SizeStep,
    done: BTreeMap<u64, SizeRun>,
}

/// Runs the given sizes, then predicts, confirms and prints the largest that fits.
pub(super) fn run(args: &DryRun, fit_sizes: &FitSizes) -> anyhow::Result<Exit> {
    placeholder::check(&args.command, &fit_sizes.name, "--fit")?;
    let directory = match &args.output {
        Some(directory) => directory.clone(),
        None => create_numbered("oomscope-dry-run")?,
    };
    if !args.options.real_files {
        print_stderr(&written_files::announce(&directory.join(format!("{}-N", fit_sizes.name))));
    }
    let mut search = SizeSearch { args, fit_sizes, directory, step: args.size_step(), done: BTreeMap::new() };
    for size in &fit_sizes.sizes {
        search.run(*size)?;
        if search.done[size].failed() {
            break;
        }
    }
    let report = search.find_largest()?;
    Output::open(None)?.write_answer(args.format, &report, report::size_search)?;
    Ok(Exit::Success)
}

impl SizeSearch<'_> {
    fn fitting(&self) -> impl Iterator<Item = u64> {
        self.done.iter().filter(|(_, ran)| !ran.failed()).map(|(size, _)| *size)
    }

    /// The numbers of the sizes between which the answer is.
    fn bracket(&self) -> Bracket {
        let low = self.fitting().last().map_or(0, |size| self.step.count_up_to(size));
        Bracket { low, high: self.failing().map(|size| self.step.count_up_to(size - 1) + 1) }
    }

    fn runs_left(&self) -> usize {
        MAX_RUNS.saturating_sub(self.done.len())
    }

    /// The smallest size that failed.
    fn failing(&self) -> Option<u64> {
        self.done.iter().find(|(_, ran)| ran.failed()).map(|(size, _)| *size)
    }

    /// Makes a dry run with `value` as the size, and prints its result.
    fn run(&mut self, value: u64) -> anyhow::Result<()> {
        let name = &self.fit_sizes.name;
        let command = placeholder::fill(&self.args.command, name, value);
        let directory = self.directory.join(format!("{name}-{value}"));
        let log = self.directory.join(format!("{name}-{value}.txt"));
        let label = format!("{name} = {value}");
        let run = SizeRun::record(&self.args.options, &command, &directory, &log, Intervention::default(), &label)?;
        self.done.insert(value, run);
        let report = self.report(None);
        if let Some(run) = report.run_at(value) {
            print_stderr(&format!("{name} = {}: {}", count(value), run.describe()));
        }
        Ok(())
    }

    /// Finds the largest size that fits: at predicted sizes, then between those that fit and fail.
    fn find_largest(&mut self) -> anyhow::Result<SizeSearchReport> {
        let mut chooser = SizeChooser::default();
        while self.runs_left() > 0 {
            let bracket = self.bracket();
            let guess = match self.predict_largest() {
                Ok(Some(size)) => Some(size),
                Ok(None) if bracket.high.is_none() => {
                    return Ok(SizeSearchReport { every_size_fits: true, largest: None, ..self.report(None) });
                }
                // Two runs have too little in common for a prediction.
                Ok(None) | Err(_) => self.extrapolate(),
            };
            let guess = guess.map(|size| self.step.count_up_to(size));
            let runs_left = u32::try_from(self.runs_left()).unwrap_or(u32::MAX);
            let Some(next) = chooser.next(bracket, guess, runs_left, self.step.max_stride()) else { break };
            self.run(self.step.size(next))?;
        }
        let low = self.fitting().last().filter(|_| self.bracket().low > 0);
        let worst_case = low.map(|low| self.find_largest_in_worst_case(low)).transpose()?;
        Ok(self.report(worst_case.flatten()))
    }

    fn report(&self, largest_in_worst_case: Option<u64>) -> SizeSearchReport {
        let (bracket, gpu) = (self.bracket(), self.args.options.assumed_gpu());
        let runs = self.done.iter().map(|(at, ran)| {
            let oom = ran.last_failure().filter(|_| ran.failed());
            SizeRunReport {
                size: *at,
                fits: !ran.failed(),
                fits_in_worst_case: ran.fits_in_worst_case(),
                reserved_bytes: ran.reserved(),
                requested_bytes: oom.map(|oom| oom.requested_bytes),
                location: oom.map(|oom| oom.location.clone()),
                snapshot: ran.snapshot.display().to_string(),
            }
        });
        SizeSearchReport {
            name: self.fit_sizes.name.clone(),
            only: self.step.describe(),
            gpu: gpu.name(),
            usable_bytes: gpu.usable_bytes(),
            largest: (bracket.low > 0).then(|| self.step.size(bracket.low)),
            largest_in_worst_case,
            fails: self.failing(),
            is_exact: bracket.high == Some(bracket.low + 1),
            every_size_fits: false,
            is_memory_unknown: self.done.values().any(|ran| !ran.failed() && !ran.has_known_memory()),
            runs: runs.collect(),
        }
    }

    /// The largest size that fits if memory grows as between the two largest that do.
    fn extrapolate(&self) -> Option<u64> {
        let mut fitting = self.done.iter().rev().filter(|(_, ran)| !ran.failed());
        let ((last, ran), (before, ran_before)) = (fitting.next()?, fitting.next()?);
        let grown = ran.reserved().checked_sub(ran_before.reserved()).filter(|grown| *grown > 0)?;
        let room = self.args.options.assumed_gpu().usable_bytes().saturating_sub(ran.reserved());
        let more = u128::from(room) * u128::from(last - before) / u128::from(grown);
        Some(last.saturating_add(u64::try_from(more).ok()?))
    }

    /// The largest size up to `low` that fits in the worst case. The search starts close to `low`.
    fn find_largest_in_worst_case(&mut self, low: u64) -> anyhow::Result<Option<u64>> {
        let largest_safe = |done: &BTreeMap<u64, SizeRun>| {
            let found = done.iter().rev().find(|(_, ran)| ran.fits_in_worst_case());
            found.map(|(at, _)| *at)
        };
        let first = largest_safe(&self.done);
        for tried in 0..MAX_WORST_CASE_CHECKS.min(self.runs_left()) {
            let found = largest_safe(&self.done);
            let from = found.map_or(1, |found| found + 1);
            if from > low {
                break;
            }
            // `low` itself was run, so there is a size in the range.
            let Some((&high, _)) = self.done.range(from..=low).next() else { break };
            if high == from {
                break;
            }
            let next = match found {
                Some(found) if Some(found) != first => found.midpoint(high),
                _ => high.saturating_sub((low / 64).max(1) << tried).max(from),
            };
            let next = self.step.size(self.step.count_up_to(next));
            if next < from || self.done.contains_key(&next) {
                break;
            }
            self.run(next)?;
        }
        Ok(largest_safe(&self.done))
    }

    /// The largest size that fits according to `fit`; `None` if all sizes fit.
    fn predict_largest(&self) -> anyhow::Result<Option<u64>> {
        let fitting = self.done.iter().filter(|(_, ran)| !ran.failed());
        let read: Vec<_> = fitting
            .map(|(at, ran)| {
                let snapshot = inputs::read_one(&ran.snapshot)?;
                Ok((*at, ran.report.path.as_str(), snapshot))
            })
            .collect::<anyhow::Result<_>>()?;
        let studies: Vec<Study<'_>> =
            read.iter().map(|(.., snapshot)| Study::new(snapshot, Scope::default())).collect();
        let sized = read.iter().zip(&studies);
        let sized: Vec<FitInput<'_, '_>> =
            sized.map(|((at, path, _), study)| FitInput { size: (*at).into(), path, study }).collect();
        let usable = self.args.options.assumed_gpu().usable_bytes();
        let options = FitOptions {
            device: None,
            at: &[],
            at_second: &[],
            capacity: Some(usable),
            // The dry run was on the GPU to predict for.
            gpu: None,
            settings: None,
            multiple: 1,
            top: 1,
        };
        let report: FitReport = fit(&sized, &options).map_err(|error| anyhow!(error))?;
        let largest = report.devices.iter().map(|device| match &device.largest_safe {
            Some(largest) => Ok(largest.size),
            None => Err(anyhow!("{}", report.summary().answer)),
        });
        let largest = largest.collect::<anyhow::Result<Vec<Option<u64>>>>()?;
        Ok(largest.into_iter().flatten().min())
    }
}

//! `--fit NAME=N,M`: dry runs at several sizes, a prediction of the largest that fits, and dry runs that confirm it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::args::DryRun;
use super::asked::Sizes;
use crate::analysis::{DryRunReport, Options, RangeReport, SnapshotReport, analyze};
use crate::base::units::{count, size};
use crate::cli::exit::{Done, complain};
use crate::cli::inputs;
use crate::cli::run::{Ended, next_free, recorded_quietly};
use crate::study::{Scope, Study};
use crate::whatif::fit::{FitInput, FitOptions, FitReport, fit};

/// Dry runs after the prediction, at most.
const MOST_CHECKS: usize = 8;
/// Dry runs for the largest size that fits throughout, at most.
const MOST_SURE_CHECKS: usize = 5;

/// One dry run.
struct Ran {
    snapshot: PathBuf,
    report: SnapshotReport,
}

impl Ran {
    fn failed(&self) -> bool {
        self.report.devices.iter().any(|device| device.oom_count > 0)
    }

    /// Most memory that a device reserved.
    fn reserved(&self) -> u64 {
        self.report.devices.iter().map(|device| device.peak.reserved_bytes).max().unwrap_or(0)
    }

    /// In a few words.
    fn told(&self) -> String {
        let failed = self.report.devices.iter().find_map(|device| device.ooms.last());
        match failed {
            None => format!("runs to its end with {} reserved", size(self.reserved())),
            Some(oom) => format!(
                "fails at {} ({} requested)",
                oom.location.label(),
                size(oom.requested_bytes)
            ),
        }
    }

    /// Whether no memory is missing for which there is no size that it could have.
    fn is_sure(&self) -> bool {
        self.report.dry_run.as_ref().is_none_or(DryRunReport::is_known)
    }

    /// Whether it fits wherever memory lies, and whatever cuDNN takes within its rule.
    fn fits_throughout(&self) -> bool {
        let ranges = self.report.dry_run.iter().flat_map(|dry| &dry.ranges);
        !self.failed() && ranges.into_iter().all(RangeReport::fits)
    }
}

/// All dry runs of one command.
struct Runs<'r> {
    args: &'r DryRun,
    asked: &'r Sizes,
    directory: PathBuf,
    done: BTreeMap<u64, Ran>,
}

/// Runs the sizes, predicts the largest that fits, confirms it, and says so in one line.
pub(super) fn run(args: &DryRun, asked: &Sizes) -> anyhow::Result<Done> {
    let place = format!("{{{}}}", asked.name);
    if !args.command.iter().any(|arg| arg.to_string_lossy().contains(&place)) {
        bail!("--fit {}=..: the command has no {place} for a size to stand in", asked.name);
    }
    let directory = match &args.output {
        Some(directory) => directory.clone(),
        None => next_free("oomscope-dry-run")?,
    };
    let mut runs = Runs { args, asked, directory, done: BTreeMap::new() };
    for size in &asked.sizes {
        runs.run(*size)?;
        if runs.done[size].failed() {
            break;
        }
    }
    let fitting: Vec<u64> = runs.fitting().collect();
    let answer = match fitting.as_slice() {
        [] | [_] => {
            let failing = runs.failing().unwrap_or_default();
            format!(
                "{} = {} does not fit on {}: it {}; name two smaller sizes",
                asked.name,
                count(failing),
                args.assumed().name(),
                runs.done.get(&failing).map(Ran::told).unwrap_or_default()
            )
        }
        _ => runs.largest()?,
    };
    let mut out = anstream::stdout().lock();
    writeln!(out, "{answer}")?;
    let pairs = runs.done.iter().map(|(size, ran)| format!("{size}={}", ran.snapshot.display()));
    complain(&format!("more: oomscope fit {}", pairs.collect::<Vec<_>>().join(" ")));
    Ok(Done::Well)
}

impl Runs<'_> {
    fn fitting(&self) -> impl Iterator<Item = u64> {
        self.done.iter().filter(|(_, ran)| !ran.failed()).map(|(size, _)| *size)
    }

    /// The smallest that is known to fail.
    fn failing(&self) -> Option<u64> {
        self.done.iter().find(|(_, ran)| ran.failed()).map(|(size, _)| *size)
    }

    /// A dry run at `size`, of which a line is said.
    fn run(&mut self, at: u64) -> anyhow::Result<()> {
        let name = &self.asked.name;
        let place = format!("{{{name}}}");
        let fill = |arg: &OsString| match arg.to_str() {
            Some(text) => OsString::from(text.replace(&place, &at.to_string())),
            None => arg.clone(),
        };
        let command: Vec<OsString> = self.args.command.iter().map(fill).collect();
        let own = self.directory.join(format!("{name}-{at}"));
        let directory = self.args.prepare(Some(&own))?;
        let log = self.directory.join(format!("{name}-{at}.txt"));
        let (ended, left) = recorded_quietly(&command, directory, &log)?;
        let ran = self.read(&left, ended, at, &log)?;
        complain(&format!("{name} = {}: {}", count(at), ran.told()));
        self.done.insert(at, ran);
        Ok(())
    }

    /// What the run at `at` left: of several ranks, the one that failed or needed most.
    fn read(&self, left: &[PathBuf], ended: Ended, at: u64, log: &Path) -> anyhow::Result<Ran> {
        let mut worst: Option<Ran> = None;
        for path in left {
            let snapshot = inputs::read_one(path)?;
            let report = analyze(&snapshot, &path.display().to_string(), 0, Options::default());
            let ran = Ran { snapshot: path.clone(), report };
            let key = |ran: &Ran| (ran.failed(), ran.reserved());
            if worst.as_ref().is_none_or(|worst| key(&ran) > key(worst)) {
                worst = Some(ran);
            }
        }
        let ended_well = ended.code() == 0;
        worst.filter(|ran| ended_well || ran.failed()).ok_or_else(|| {
            let name = &self.asked.name;
            let why = if ended_well {
                "no process used CUDA".to_owned()
            } else {
                format!("the command ended with exit code {}, not for lack of memory", ended.code())
            };
            anyhow!("{name} = {at}: {why}: {} has what it said", log.display())
        })
    }

    /// Predicts, and confirms by dry runs.
    fn largest(&mut self) -> anyhow::Result<String> {
        let name = self.asked.name.clone();
        let gpu = self.args.assumed().name();
        for _ in 0..MOST_CHECKS {
            let low = self.fitting().last().unwrap_or(0);
            let high = self.failing();
            if high == Some(low + 1) {
                break;
            }
            let Some(predicted) = self.predicted()? else {
                return Ok(format!(
                    "every {name} fits on {gpu} (dry run): its memory does not grow"
                ));
            };
            let most = high.map_or(u64::MAX, |high| high - 1);
            // Where the prediction is confirmed so far, the next size is to fail.
            let next = if predicted <= low { low + 1 } else { predicted.min(most) };
            self.run(next)?;
        }
        let low = self.fitting().last().unwrap_or(0);
        let throughout = self.throughout(low)?;
        let fits = self.done[&low].told();
        let sure = if self.done.values().all(|ran| ran.failed() || ran.is_sure()) {
            ""
        } else {
            "; memory is missing that only a GPU knows, so it may be less: see the snapshot"
        };
        let high = self.failing();
        let is_next = high == Some(low + 1);
        let and_high = match high {
            Some(high) if is_next => format!(", {} {}", count(high), self.done[&high].told()),
            Some(high) => {
                format!("; {} {}, between them was not tried", count(high), self.done[&high].told())
            }
            None => String::new(),
        };
        let with = "with workspaces of cuDNN and wherever memory lies";
        let (low, is_largest) = (count(low), if is_next { "largest" } else { "largest tried" });
        let without = format!("without, the {is_largest} is {low}: it {fits}{and_high}{sure}");
        Ok(match throughout {
            None => format!(
                "no {name} that was tried is sure to fit on {gpu} (dry run) {with}; {without}"
            ),
            Some(at) if count(at) != low => {
                format!("{name} = {} fits on {gpu} (dry run) {with}; {without}", count(at))
            }
            Some(_) if is_next => format!(
                "the largest {name} that fits on {gpu} is {low} (dry run): it {fits}{and_high}{sure}"
            ),
            Some(_) => {
                let more = if high.is_none() { ", and more may" } else { "" };
                format!("{name} = {low} fits on {gpu} (dry run){more}: it {fits}{and_high}{sure}")
            }
        })
    }

    /// The largest size up to `low` that is known to fit throughout: the one to promise. Looked for close to `low` first.
    fn throughout(&mut self, low: u64) -> anyhow::Result<Option<u64>> {
        let sure = |done: &BTreeMap<u64, Ran>| {
            let found = done.iter().rev().find(|(_, ran)| ran.fits_throughout());
            found.map(|(at, _)| *at)
        };
        let first = sure(&self.done);
        for tried in 0..MOST_SURE_CHECKS {
            let found = sure(&self.done);
            let from = found.unwrap_or(0) + 1;
            if from > low {
                break;
            }
            let Some((&high, _)) = self.done.range(from..=low).next() else { break };
            if high == from {
                break;
            }
            let next = match found {
                Some(found) if found != first.unwrap_or(0) => found.midpoint(high),
                _ => high.saturating_sub((low / 64).max(1) << tried).max(from),
            };
            self.run(next)?;
        }
        Ok(sure(&self.done))
    }

    /// The largest size that `fit` says fits; `None` where every one does.
    fn predicted(&self) -> anyhow::Result<Option<u64>> {
        let fitting = self.done.iter().filter(|(_, ran)| !ran.failed());
        let read: Vec<_> = fitting
            .map(|(at, ran)| {
                let snapshot = inputs::read_one(&ran.snapshot)
                    .with_context(|| ran.snapshot.display().to_string())?;
                Ok((*at, ran.report.path.as_str(), snapshot))
            })
            .collect::<anyhow::Result<_>>()?;
        let studies: Vec<Study<'_>> =
            read.iter().map(|(.., snapshot)| Study::new(snapshot, Scope::default())).collect();
        let sized = read.iter().zip(&studies);
        let sized: Vec<FitInput<'_, '_>> = sized
            .map(|((at, path, _), study)| FitInput { size: (*at).into(), path, study })
            .collect();
        let usable = self.args.assumed().usable_bytes();
        let options = FitOptions {
            device: None,
            at: &[],
            at_second: &[],
            capacity: Some(usable),
            settings: None,
            multiple: 1,
            top: 1,
            curve: 0,
        };
        let report: FitReport = fit(&sized, &options).map_err(|error| anyhow!(error))?;
        let largest = report.devices.iter().map(|device| match &device.largest {
            Some(largest) => Ok(largest.size),
            None => Err(anyhow!("{}", report.summary.answer)),
        });
        let largest = largest.collect::<anyhow::Result<Vec<Option<u64>>>>()?;
        Ok(largest.into_iter().flatten().min())
    }
}

//! Makes dry runs at several sizes until the largest that fits was run, and the next fails: `fit -- COMMAND`. A size
//! replaces `{NAME}` in the command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use itertools::Itertools as _;

use super::options::{DryRunOptions, Intervention};
use super::size_run::{SizeRun, last_line};
use super::written_files;
use crate::analysis::{RefusedSize, SizeRunReport, SizeSearchReport};
use crate::base::units::count;
use crate::cli::exit::print_stderr;
use crate::cli::inputs::SizedRecordings;
use crate::cli::run::create_numbered;
use crate::whatif::fit::{Bracket, FitOptions, FitReport, SizeChooser, fit, size_on_line};

/// Maximum number of dry runs of a command.
const MAX_RUNS: usize = 5;
/// If memory does not grow, this multiple of the largest size is run before the answer is that every size fits.
const FAR: u64 = 1024;

/// Maximum number of sizes that the program refuses.
const MAX_REFUSED: usize = 4;
/// Largest number of which the program may take only multiples.
const MAX_MULTIPLE: u64 = 512;

/// The dry runs of one command.
pub(in crate::cli) struct SizeSearch<'r> {
    options: &'r DryRunOptions,
    command: &'r [OsString],
    /// The placeholder in the command, without its braces.
    name: &'r str,
    /// The answer is a multiple of this: `given_multiple`, or that of the program, by what it refuses.
    multiple: u64,
    given_multiple: u64,
    directory: PathBuf,
    done: BTreeMap<u64, SizeRun>,
    /// Sizes with which the program ended with an error of its own.
    refused: Vec<RefusedSize>,
}

impl<'r> SizeSearch<'r> {
    /// A search with its snapshots in a new directory.
    pub(in crate::cli) fn new(
        options: &'r DryRunOptions,
        command: &'r [OsString],
        name: &'r str,
        multiple: u64,
    ) -> anyhow::Result<Self> {
        options.machine.check_memory()?;
        let directory = create_numbered("oomscope-dry-run")?;
        if !options.real_files {
            print_stderr(&written_files::announce(&directory.join(format!("{name}-N"))));
        }
        let (done, refused) = (BTreeMap::new(), Vec::new());
        Ok(Self { options, command, name, multiple, given_multiple: multiple, directory, done, refused })
    }

    /// Runs `sizes`, which are sorted, then predicts and confirms the largest that fits.
    pub(in crate::cli) fn run(mut self, sizes: &[u64]) -> anyhow::Result<SizeSearchReport> {
        let mut sizes = sizes.to_vec();
        let mut next = 0;
        while let Some(size) = sizes.get(next).copied() {
            if self.run_at(size)? {
                next += 1;
            } else {
                sizes = (1..=sizes.len() as u64).map(|factor| factor * self.multiple).collect();
                next = 0;
            }
            if self.failing().is_some() {
                break;
            }
        }
        Ok(self.find_largest())
    }

    fn fitting(&self) -> impl Iterator<Item = (u64, &SizeRun)> {
        self.done.iter().filter(|(_, ran)| !ran.has_failed).map(|(size, ran)| (*size, ran))
    }

    /// The numbers of the sizes between which the answer is.
    fn bracket(&self) -> Bracket {
        let low = self.fitting().filter_map(|(size, _)| self.number_of(size)).last().unwrap_or(0);
        let refused = self.refused.iter().filter_map(|refused| self.number_of(refused.size));
        let refused = refused.filter(|number| *number > low);
        let failing = self.failing().map(|size| size.div_ceil(self.multiple));
        Bracket { low, high: refused.chain(failing).min() }
    }

    /// `size` as a multiple of the number of which the program takes multiples.
    fn number_of(&self, size: u64) -> Option<u64> {
        size.is_multiple_of(self.multiple).then_some(size / self.multiple)
    }

    fn runs_left(&self) -> usize {
        MAX_RUNS.saturating_sub(self.done.len())
    }

    /// The smallest size that failed above all that fit.
    fn failing(&self) -> Option<u64> {
        let largest = self.fitting().last().map_or(0, |(size, _)| size);
        self.done.range(largest + 1..).next().map(|(size, _)| *size)
    }

    /// Makes a dry run with `value` as the size, and prints its result. If the program refuses it, returns false;
    /// `multiple` is then a number of which it may take multiples.
    fn run_at(&mut self, value: u64) -> anyhow::Result<bool> {
        let name = self.name;
        let command = fill_placeholder(self.command, name, value);
        let directory = self.directory.join(format!("{name}-{value}"));
        let label = format!("{name} = {value}");
        let run = match SizeRun::record(self.options, &command, &directory, Intervention::default(), &label) {
            Err(error) if self.refused.len() < MAX_REFUSED => {
                print_stderr(&format!("{error:#}"));
                let reason = last_line(&directory.with_extension("txt")).unwrap_or_else(|| "an error".to_owned());
                self.refused.push(RefusedSize { size: value, reason });
                self.multiple = match self.likely_multiple() {
                    Some(multiple) => multiple,
                    // It refuses the size for another reason, such as a limit.
                    None if self.fitting().next().is_some() => self.given_multiple,
                    None => return Err(error),
                };
                return Ok(false);
            }
            run => run?,
        };
        self.done.insert(value, run);
        let report = self.report();
        if let Some(run) = report.run_at(value) {
            let made = self.done.len();
            print_stderr(&format!("{name} = {}: {} (run {made} of at most {MAX_RUNS})", count(value), run.describe()));
        }
        Ok(true)
    }

    /// The smallest number of which every size that ran is a multiple, and none that was refused: powers of two first.
    fn likely_multiple(&self) -> Option<u64> {
        (1..=MAX_MULTIPLE.ilog2()).map(|power| 1 << power).chain(2..=MAX_MULTIPLE).find(|number| {
            number.is_multiple_of(self.given_multiple)
                && self.done.keys().all(|size| size.is_multiple_of(*number))
                && !self.refused.iter().any(|refused| refused.size.is_multiple_of(*number))
        })
    }

    /// Finds the largest size that fits: at predicted sizes, then between those that fit and fail.
    fn find_largest(&mut self) -> SizeSearchReport {
        let (mut chooser, mut has_run_far) = (SizeChooser::default(), false);
        while self.runs_left() > 0 {
            let bracket = self.bracket();
            let guess = match self.predict_largest() {
                Ok(Some(size)) => Some(size),
                Ok(None) if bracket.high.is_none() => {
                    // Sizes that are padded to a multiple need the same up to it: run one far above.
                    let far = bracket.low.saturating_mul(FAR).saturating_mul(self.multiple);
                    if has_run_far || !self.run_at(far).unwrap_or(false) {
                        return SizeSearchReport { every_size_fits: true, largest: None, ..self.report() };
                    }
                    has_run_far = true;
                    continue;
                }
                // Two runs have too little in common for a prediction.
                Ok(None) | Err(_) => self.extrapolate(),
            };
            let guess = guess.map(|size| size / self.multiple);
            let runs_left = u32::try_from(self.runs_left()).unwrap_or(u32::MAX);
            let Some(next) = chooser.next(bracket, guess, runs_left) else { break };
            if self.run_at(next.saturating_mul(self.multiple)).is_err() {
                break;
            }
        }
        let by_data = self.fit_runs().ok().and_then(|report| report.limiting_device()?.by_data);
        let report = self.report();
        SizeSearchReport { by_data, is_exact: report.is_exact && by_data.is_none(), ..report }
    }

    fn report(&self) -> SizeSearchReport {
        let (bracket, gpu) = (self.bracket(), &self.options.machine);
        let runs = self.done.iter().map(|(at, ran)| {
            let oom = ran.last_failure().filter(|_| ran.has_failed);
            SizeRunReport {
                size: *at,
                fits: !ran.has_failed,
                fits_in_worst_case: ran.fits_in_worst_case(),
                reserved_bytes: ran.reserved(),
                requested_bytes: oom.map(|oom| oom.requested_bytes),
                location: oom.map(|oom| oom.location.clone()),
                snapshot: ran.snapshot.display().to_string(),
            }
        });
        // Some memory of a GPU is unknown to a dry run.
        let is_memory_unknown =
            self.fitting().any(|(_, ran)| ran.report.dry_run.as_ref().is_some_and(|dry| !dry.is_known()));
        SizeSearchReport {
            name: self.name.to_owned(),
            only: (self.multiple > 1).then(|| format!("a multiple of {}", self.multiple)),
            gpu: gpu.name(),
            usable_bytes: gpu.usable_bytes(),
            largest: (bracket.low > 0).then(|| bracket.low * self.multiple),
            fails: self.failing(),
            is_exact: bracket.high == Some(bracket.low + 1),
            every_size_fits: false,
            by_data: None,
            refused: self.refused.clone(),
            is_memory_unknown,
            runs: runs.collect(),
        }
    }

    /// The largest size that fits if memory grows as between the two largest that do.
    fn extrapolate(&self) -> Option<u64> {
        let points: Vec<(u64, u64)> = self.fitting().map(|(size, ran)| (size, ran.reserved())).collect();
        size_on_line(&points, self.options.machine.usable_bytes())
    }

    /// The prediction from the runs that fit.
    fn fit_runs(&self) -> anyhow::Result<FitReport> {
        let mut recordings = SizedRecordings::default();
        for (size, ran) in self.fitting() {
            recordings.add(size, &ran.snapshot)?;
        }
        // The dry run was on the GPU to predict for.
        let (gpu, capacity) = (None, Some(self.options.machine.usable_bytes()));
        let options = FitOptions { sizes: &[], capacity, gpu, settings: None, multiple: 1 };
        recordings.study(|inputs| fit(inputs, &options))?.map_err(|refusal| anyhow!(refusal.sentence))
    }

    /// The largest size that fits according to `fit`; `None` if all sizes fit.
    fn predict_largest(&self) -> anyhow::Result<Option<u64>> {
        let report = self.fit_runs()?;
        let largest = report.devices.iter().map(|device| match &device.largest_safe {
            Some(largest) => Ok(largest.size),
            None => Err(anyhow!("{}", report.summary().answer)),
        });
        let largest = largest.collect::<anyhow::Result<Vec<Option<u64>>>>()?;
        Ok(largest.into_iter().flatten().min())
    }
}

/// The name of the only placeholder in `command`.
pub(in crate::cli) fn find_placeholder(command: &[OsString]) -> anyhow::Result<String> {
    let words = command.iter().map(|word| word.to_string_lossy());
    let names: Vec<String> = words.flat_map(|word| names_in(&word)).sorted_unstable().dedup().collect();
    match names.as_slice() {
        [name] => Ok(name.clone()),
        [] => bail!(
            "the command has no word in braces for the size, such as --batch {{BATCH}}, or env BATCH={{BATCH}} before the \
             program"
        ),
        _ => bail!("the command has several words in braces: {{{}}}; one is the size", names.join("}, {")),
    }
}

/// The names in braces in `word`.
fn names_in(word: &str) -> Vec<String> {
    let in_braces = word.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0));
    let names = in_braces.filter(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'));
    names.map(str::to_owned).collect()
}

/// `command` with `size` in place of `{name}`.
pub(in crate::cli) fn fill_placeholder(command: &[OsString], name: &str, size: u64) -> Vec<OsString> {
    let placeholder = format!("{{{name}}}");
    let words = command.iter().map(|arg| match arg.to_str() {
        Some(text) => OsString::from(text.replace(&placeholder, &size.to_string())),
        None => arg.clone(),
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::find_placeholder;

    #[test]
    fn the_only_name_in_braces_is_found() {
        let found = find_placeholder(&["python", "t.py", "--batch={BATCH}", "--log", "{BATCH}.txt"].map(Into::into));
        assert_eq!(found.unwrap(), "BATCH");
        for (words, error) in [(["t.py", "{}"], "no word in braces"), (["{A}", "{B}"], "{A}, {B}")] {
            assert!(find_placeholder(&words.map(Into::into)).unwrap_err().to_string().contains(error));
        }
    }
}

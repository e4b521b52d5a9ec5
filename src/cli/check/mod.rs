//! `oomscope check`

mod args;
mod entry;
mod job;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use itertools::Itertools as _;

pub(super) use self::args::Check;
use self::args::CheckFormat;
use self::entry::{EntryArgs, name_in_entry};
use self::job::FinishedJob;
use super::args::Format;
use super::config::{CONFIG, Config, EXAMPLE};
use super::exit::{Exit, print_stderr};
use super::guess::shell_line;
use super::inputs::{self, Input};
use super::output::Output;
use super::source::find_below;
use crate::analysis::{Unreadable, without_reason};
use crate::base::warning::Code;
use crate::compare::gate::{
    AllowMissing, BaselineEntry, CheckReport, FileWarning, Gate, JudgedSnapshot, Limit, LimitRules, RankCount, judge,
};
use crate::output::{formats, report};

pub(super) fn run(args: &Check) -> anyhow::Result<Exit> {
    if args.print_config {
        return Output::open(args.output.as_deref())?.write(&EXAMPLE);
    }
    let criteria = Criteria::load(args)?;
    let mut checked = Checked::given(args)?;
    let outputs = open_outputs(args, &criteria, &mut checked.inputs)?;
    if args.machine.is_gpu_given() {
        checked = Checked::recorded(FinishedJob::run(args)?)?;
    }
    let report = judge_all(args, &criteria, &checked)?;
    for (path, message) in report.not_checked() {
        print_stderr(&format!("{path}: {message}"));
    }
    outputs.into_iter().try_for_each(|(format, output)| write(&report, format, output).map(drop))?;
    if let Some(job) = &checked.job {
        job.finish(report.passed)?;
    }
    Ok(match (report.unreadable.is_empty(), report.passed) {
        (false, _) => Exit::Unreadable,
        (true, false) => Exit::Failed,
        (true, true) => Exit::Success,
    })
}

/// The limits and the entry that decide whether the check passes.
struct Criteria {
    config: Config,
    config_path: Option<PathBuf>,
    entry: Option<EntryArgs>,
    allow_missing: AllowMissing,
}

impl Criteria {
    /// Fails if nothing decides.
    fn load(args: &Check) -> anyhow::Result<Self> {
        let (config, config_path) = Config::load(args.config.as_deref())?;
        let limits: Vec<Limit> = config.limits.set_limits().chain(args.limits.0.keys().copied()).collect();
        let has_command = args.machine.is_gpu_given();
        let command = has_command.then(|| args.checked_command().map(shell_line)).transpose()?;
        let entry = EntryArgs::load(args, (&config, config_path.as_deref()), command)?;
        if let (None, Some(limit)) = (&entry, limits.iter().find(|limit| limit.needs_baseline())) {
            bail!("{} needs a baseline: give --baseline oomscope-baseline.json (--add writes it)", limit.key());
        }
        if limits.is_empty() && !has_command && entry.is_none() {
            bail!(
                "no limit to check: give one (such as --max-ooms 0) or write {CONFIG} \
                 (see oomscope check --print-config)"
            );
        }
        Ok(Self { config, config_path, entry, allow_missing: args.allow_missing.iter().cloned().collect() })
    }
}

/// The snapshots to check.
struct Checked {
    inputs: Vec<Input>,
    /// The files and directories that name them.
    paths: Vec<PathBuf>,
    /// The dry run that recorded them, if it was for this check.
    job: Option<FinishedJob>,
}

impl Checked {
    /// The snapshots that `args` name; none if they name a command.
    fn given(args: &Check) -> anyhow::Result<Self> {
        let paths = if args.machine.is_gpu_given() { Vec::new() } else { args.given_snapshots() };
        let mut inputs = inputs::expand_paths(&paths)?;
        inputs::keep_latest(&mut inputs);
        Ok(Self { inputs, paths, job: None })
    }

    fn recorded(job: FinishedJob) -> anyhow::Result<Self> {
        let paths = job.snapshots();
        Ok(Self { inputs: inputs::expand_paths(&paths)?, paths, job: Some(job) })
    }
}

/// The names of the snapshots in an entry of the baseline, by their paths.
fn entry_names(checked: &Checked, entry: Option<&EntryArgs>) -> BTreeMap<String, String> {
    if let Some(job) = &checked.job {
        return job.process_names();
    }
    // The only process of an entry needs no name.
    let is_single = checked.inputs.len() == 1
        && entry.is_some_and(|entry| entry.before.as_ref().is_none_or(BaselineEntry::has_single_process));
    let files_of_ranks = checked.inputs.iter().filter_map(|input| Some(without_reason(&input.name)?.0)).counts();
    let names = checked.inputs.iter().map(|Input { name: path, .. }| {
        let name = match (name_in_entry(path, &checked.paths), without_reason(path)) {
            _ if is_single => String::new(),
            // A rank that failed has another file name than one that did not.
            (name, Some((rank, _))) if files_of_ranks.get(&rank) == Some(&1) => {
                without_reason(&name).map_or(name, |(rank, _)| rank)
            }
            (name, _) => name,
        };
        (path.clone(), name)
    });
    names.collect()
}

fn judge_all(args: &Check, criteria: &Criteria, checked: &Checked) -> anyhow::Result<CheckReport> {
    let Criteria { config, config_path, entry, allow_missing } = criteria;
    let root = repository_root();
    let names = entry_names(checked, entry.as_ref());
    let gate = Gate {
        rules: &config.limits,
        flags: &args.limits.0,
        entry: entry.as_ref().filter(|entry| !entry.is_written).map(EntryArgs::named),
        is_measured: entry.is_some(),
        is_only: checked.inputs.len() == 1,
        allow_missing,
        device: args.device,
        source: &|file| find_below(&root, file).map(|path| inputs::with_slashes(&path)),
    };
    let (judged, mut unreadable) = inputs::read_all(&checked.inputs, |snapshot, path, _| {
        judge(snapshot, path, names.get(path).map_or("", String::as_str), &gate)
    });
    let judged = require_devices(judged, &mut unreadable, args.device)?;
    let has_findings = judged.iter().any(|file| !file.findings.is_empty());
    if !has_findings && unreadable.is_empty() && checked.job.is_none() && entry.is_none() {
        bail!("no limit applies to any of the snapshots");
    }
    let config_path = config_path.as_ref().map(|path| path.display().to_string());
    let warnings = config_path.iter().flat_map(|path| unused_overrides(&config.limits, path, &judged)).collect();
    let unreadable_names = unreadable.iter().map(|file| names.get(&file.path).cloned().unwrap_or_default()).collect();
    let (measured, objections) = entry.as_ref().map(|entry| entry.measure(&judged, allow_missing)).unzip();
    let ranks = RankCount::new(args.ranks, &judged);
    let others = CheckReport {
        config: config_path,
        findings: gate.missing_findings(&judged, &unreadable_names),
        warnings,
        unreadable,
        ranks: ranks.filter(|_| args.ranks.is_some() || !allow_missing.contains(Code::NotChecked.word())),
        objections: objections.unwrap_or_default(),
        dry_run: checked.job.as_ref().map(|job| job.check(allow_missing, gate.source)),
        ..Default::default()
    };
    let report = CheckReport::new(judged, others);
    let comparison = entry.as_ref().zip(measured).map(|(entry, measured)| entry.finish(measured, report.passed));
    Ok(report.with_baseline(comparison.transpose()?))
}

/// The root of the repository that contains the working directory, or else the working directory. Annotations need
/// paths relative to it.
fn repository_root() -> PathBuf {
    // A deleted working directory has no files to annotate.
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().find(|dir| dir.join(".git").exists()).map_or_else(|| here.clone(), Path::to_owned)
}

/// Warns about overrides in `config` that apply to nothing, because their path may be misspelt.
fn unused_overrides(rules: &LimitRules, config: &str, judged: &[JudgedSnapshot]) -> Vec<FileWarning> {
    let checked: Vec<(&str, u64)> =
        judged.iter().flat_map(|file| file.devices.iter().map(|id| (&*file.path, *id))).collect();
    let warnings = rules.unmatched(&checked).map(|rule| {
        let message = format!("the [[override]] with {rule} matches no checked snapshot and device");
        FileWarning { path: config.to_owned(), code: Code::UnusedOverride, message }
    });
    warnings.collect()
}

/// A snapshot without a device to check must not pass silently, so it counts as unreadable. With `--device`, at least
/// one snapshot must have the device.
fn require_devices(
    judged: Vec<JudgedSnapshot>,
    unreadable: &mut Vec<Unreadable>,
    device: Option<u64>,
) -> anyhow::Result<Vec<JudgedSnapshot>> {
    let Some(device) = device else {
        let (kept, empty): (Vec<_>, Vec<_>) = judged.into_iter().partition(|file| !file.devices.is_empty());
        let message = "no memory and no trace to check";
        unreadable.extend(empty.into_iter().map(|file| Unreadable { path: file.path, message: message.to_owned() }));
        return Ok(kept);
    };
    let lacks_device = judged.iter().all(|file| file.devices.is_empty());
    match inputs::missing_device(judged.iter().map(|file| &*file.path), device) {
        Some(message) if lacks_device => bail!(message),
        _ => Ok(judged),
    }
}

/// Opens the destinations of the result, `--format` with `--output` and each `--also`, so that a bad path fails before the
/// work starts. Fails if one of them is among `inputs` or the files of `criteria`.
fn open_outputs(
    args: &Check,
    criteria: &Criteria,
    inputs: &mut Vec<Input>,
) -> anyhow::Result<Vec<(CheckFormat, Output)>> {
    let protected = [criteria.config_path.as_ref(), criteria.entry.as_ref().map(|entry| &entry.path)];
    let main = (args.format, args.output.as_deref());
    let also = args.also.iter().map(|(format, path)| (*format, Some(path.as_path())));
    let wanted: Vec<(CheckFormat, Option<&Path>)> = std::iter::once(main).chain(also).collect();
    for (_, path) in &wanted {
        inputs::refuse_output_over_inputs(inputs, *path)?;
        for protected in protected.into_iter().flatten().filter(|path| path.is_file()) {
            inputs::refuse_output_over_input(protected, *path)?;
        }
    }
    wanted.into_iter().map(|(format, path)| Ok((format, Output::open(path)?.with_view(args.view)))).collect()
}

fn write(report: &CheckReport, format: CheckFormat, output: Output) -> anyhow::Result<Exit> {
    let format = match format {
        CheckFormat::Github => return output.write(&formats::github(report)),
        CheckFormat::Junit => return output.write(&formats::junit(report)),
        CheckFormat::Sarif => return output.write(&formats::json(&formats::sarif(report, env!("CARGO_PKG_VERSION")))?),
        CheckFormat::Human => Format::Human,
        CheckFormat::Json => Format::Json,
        CheckFormat::Jsonl => Format::Jsonl,
        CheckFormat::Markdown => Format::Markdown,
    };
    output.write_answer(format, report, report::check)
}

//! `oomscope check`

mod args;
mod entry;
mod job;

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
    objections,
};
use crate::output::{formats, report};

pub(super) fn run(args: &Check) -> anyhow::Result<Exit> {
    if args.print_config {
        return Output::open(args.output.as_deref())?.write(&EXAMPLE);
    }
    let (config, config_path) = Config::load(args.config.as_deref())?;
    let flags = &args.limits.0;
    let limits: Vec<Limit> = config.limits.set_limits().chain(flags.keys().copied()).collect();
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
    let mut inputs = if has_command { Vec::new() } else { inputs::expand_paths(&args.given_snapshots())? };
    inputs::keep_latest(&mut inputs);
    let others = [config_path.as_deref(), entry.as_ref().map(|entry| &*entry.path)];
    let outputs = open_outputs(args, others, &mut inputs)?;
    let job = has_command.then(|| FinishedJob::run(args)).transpose()?;
    let paths = job.as_ref().map_or_else(|| args.given_snapshots(), FinishedJob::snapshots);
    if !paths.is_empty() && has_command {
        inputs = inputs::expand_paths(&paths)?;
    }
    let root = repository_root();
    let source = |file: &str| find_below(&root, file).map(|path| inputs::with_slashes(&path));
    let allow_missing: AllowMissing = args.allow_missing.iter().cloned().collect();
    let names = job.as_ref().map(FinishedJob::process_names);
    let files_of_ranks = inputs.iter().filter_map(|input| Some(without_reason(&input.name)?.0)).counts();
    let name_of = |path: &str| match (&names, &entry) {
        (Some(names), _) => names.get(path).cloned().unwrap_or_default(),
        (None, Some(entry))
            if inputs.len() == 1 && entry.before.as_ref().is_none_or(BaselineEntry::has_single_process) =>
        {
            String::new()
        }
        (None, _) => match (name_in_entry(path, &paths), without_reason(path)) {
            // A rank that failed has another file name than one that did not.
            (name, Some((rank, _))) if files_of_ranks.get(&rank) == Some(&1) => {
                without_reason(&name).map_or(name, |(rank, _)| rank)
            }
            (name, _) => name,
        },
    };
    let compared = entry.as_ref().filter(|entry| !entry.is_written);
    let gate = Gate {
        rules: &config.limits,
        flags,
        entry: compared.map(EntryArgs::named),
        is_measured: entry.is_some(),
        is_only: inputs.len() == 1,
        allow_missing: &allow_missing,
        device: args.device,
        source: &source,
    };
    let (judged, mut unreadable) =
        inputs::read_all(&inputs, |snapshot, path, _| judge(snapshot, path, &name_of(path), &gate));
    let judged = require_devices(judged, &mut unreadable, args.device)?;
    let has_findings = judged.iter().any(|file| !file.findings.is_empty());
    if !has_findings && unreadable.is_empty() && job.is_none() && entry.is_none() {
        bail!("no limit applies to any of the snapshots");
    }
    let config_path = config_path.map(|path| path.display().to_string());
    let warnings = config_path.iter().flat_map(|path| unused_overrides(&config.limits, path, &judged)).collect();
    let unreadable_names = unreadable.iter().map(|file| name_of(&file.path)).collect();
    let findings = gate.missing_findings(&judged, &unreadable_names);
    let dry_run = job.as_ref().map(|job| job.check(&allow_missing, &source));
    let measured = entry.as_ref().map(|_| EntryArgs::measure(&judged));
    let refusal = entry.as_ref().zip(measured.as_ref());
    let refusal = refusal.and_then(|(entry, measured)| entry.refusal(&judged, measured, &allow_missing));
    let both = compared.and_then(|entry| entry.before.as_ref()).zip(measured.as_ref());
    let objections = both.map(|(before, after)| objections(before, after, &judged, &allow_missing)).unwrap_or_default();
    let ranks = RankCount::new(args.ranks, &judged);
    let ranks = ranks.filter(|_| args.ranks.is_some() || !allow_missing.contains(Code::NotChecked.word()));
    let others = CheckReport {
        config: config_path,
        findings,
        warnings,
        unreadable,
        ranks,
        objections,
        dry_run,
        ..Default::default()
    };
    let report = CheckReport::new(judged, others);
    let comparison = entry.as_ref().zip(measured);
    let comparison = comparison.map(|(entry, measured)| entry.finish(measured, report.passed, refusal));
    let report = report.with_baseline(comparison.transpose()?);
    for (path, message) in report.not_checked() {
        print_stderr(&format!("{path}: {message}"));
    }
    outputs.into_iter().try_for_each(|(format, output)| write(&report, format, output).map(drop))?;
    match &job {
        Some(job) if report.passed => job.remove_temporary()?,
        Some(job) if job.directory.exists() => {
            print_stderr(&format!("for details: oomscope {}", job.directory.display()));
        }
        _ => {}
    }
    Ok(match (report.unreadable.is_empty(), report.passed) {
        (false, _) => Exit::Unreadable,
        (true, false) => Exit::Failed,
        (true, true) => Exit::Success,
    })
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
/// work starts. Fails if one of them is among `inputs` or `others`.
fn open_outputs(
    args: &Check,
    others: [Option<&Path>; 2],
    inputs: &mut Vec<Input>,
) -> anyhow::Result<Vec<(CheckFormat, Output)>> {
    let main = (args.format, args.output.as_deref());
    let also = args.also.iter().map(|(format, path)| (*format, Some(path.as_path())));
    let wanted: Vec<(CheckFormat, Option<&Path>)> = std::iter::once(main).chain(also).collect();
    for (_, path) in &wanted {
        inputs::refuse_output_over_inputs(inputs, *path)?;
        for protected in others.into_iter().flatten().filter(|path| path.is_file()) {
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

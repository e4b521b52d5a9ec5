//! `oomscope check`

mod args;
mod baseline;
mod limits;
mod repository;

use anyhow::bail;

pub(super) use self::args::Check;
use self::baseline::{baseline_name, load_baseline, save_baseline};
use self::repository::{find_source, repository_root};
use super::args::Format;
use super::config::{CONFIG, Config, EXAMPLE};
use super::exit::{Exit, print_stderr};
use super::inputs;
use super::output::Output;
use crate::analysis::Unreadable;
use crate::base::warning::Code;
use crate::compare::gate::{
    AllowMissing, CheckReport, FileWarning, Gate, JudgedSnapshot, Limit, LimitRule, LimitRules, judge,
};
use crate::output::formats;
use crate::output::report;

pub(super) fn run(args: &Check) -> anyhow::Result<Exit> {
    if args.print_config {
        let output = Output::open(args.output.as_deref())?;
        output.write(&EXAMPLE)?;
        return Ok(Exit::Success);
    }
    if let Some(file) = &args.save_baseline {
        return save_baseline(args, file);
    }
    let (config, config_path) = Config::load(args.config.as_deref())?;
    let flags = args.limits.limits();
    let limits: Vec<Limit> = config.limits.set_limits().chain(flags.iter().map(|(limit, _)| limit)).collect();
    if limits.is_empty() {
        bail!(
            "no limit to check: give one (such as --max-ooms 0) or write {CONFIG} \
             (see oomscope check --print-config)"
        );
    }
    let mut inputs = inputs::expand_paths(&args.snapshots)?;
    if let Some(path) = &args.output {
        inputs::refuse_output_over_inputs(&mut inputs, path)?;
        config_path.as_ref().map_or(Ok(()), |config| inputs::refuse_output_over_input(config, path))?;
    }
    let baseline = load_baseline(args, &config, config_path.as_deref(), &limits)?;
    let output = Output::open(args.output.as_deref())?;
    let root = repository_root();
    let gate = Gate {
        rules: &config.limits,
        flags,
        baseline: baseline.as_ref(),
        is_only: inputs.len() == 1,
        is_complete: inputs.len() > 1 || args.snapshots.iter().any(|path| path.is_dir()),
        allow_missing: &AllowMissing::new(&args.allow_missing),
        device: args.device,
        minor: args.torch_version,
        source: &|file| find_source(&root, file),
    };
    let (judged, unreadable) = inputs::read_all(&inputs, |snapshot, path, _| {
        (path.to_owned(), judge(snapshot, path, &baseline_name(path, &args.snapshots), &gate))
    });
    let (judged, unreadable) = require_devices(judged, unreadable, args.device)?;
    if judged.iter().all(|file| file.findings.is_empty()) && unreadable.is_empty() {
        bail!("no limit applies to any of the snapshots");
    }
    let config_path = config_path.map(|path| path.display().to_string());
    let unused = config_path.iter().flat_map(|path| unused_overrides(&config.limits, path, &judged)).collect();
    let names = unreadable.iter().map(|file| baseline_name(&file.path, &args.snapshots)).collect();
    let missing = gate.missing_findings(&judged, &names);
    let report = CheckReport::new(judged, missing, config_path, unused, unreadable, args.ranks);
    for (path, message) in report.not_checked() {
        print_stderr(&format!("{path}: {message}"));
    }
    write(&report, args.format, output)?;
    Ok(match (report.unreadable.is_empty(), report.passed) {
        (false, _) => Exit::Unreadable,
        (true, false) => Exit::Failed,
        (true, true) => Exit::Success,
    })
}

/// Warns about overrides in `config` that apply to nothing, because their path may be misspelt.
fn unused_overrides(rules: &LimitRules, config: &str, judged: &[JudgedSnapshot]) -> Vec<FileWarning> {
    let checked: Vec<(&str, u64)> =
        judged.iter().flat_map(|file| file.devices.iter().map(|id| (&*file.path, *id))).collect();
    let warning = |rule: &LimitRule| {
        let message = format!("the [[override]] with {rule} matches no checked snapshot and device");
        FileWarning { path: config.to_owned(), code: Code::UnusedOverride, message }
    };
    rules.unmatched(&checked).map(warning).collect()
}

fn write(report: &CheckReport, format: Format, output: Output) -> anyhow::Result<()> {
    let text = match format {
        Format::Github => formats::github(report),
        Format::Junit => formats::junit(report),
        Format::Sarif => formats::json(&formats::sarif(report, env!("CARGO_PKG_VERSION")))?,
        format => return output.write_answer(format, report, report::check),
    };
    output.write(&text)
}

/// A snapshot without a device to check must not pass silently, so it counts as unreadable. With `--device`, at least
/// one snapshot must have the device.
fn require_devices(
    judged: Vec<(String, JudgedSnapshot)>,
    mut unreadable: Vec<Unreadable>,
    device: Option<u64>,
) -> anyhow::Result<(Vec<JudgedSnapshot>, Vec<Unreadable>)> {
    if let Some(device) = device {
        let paths = judged.iter().map(|(path, _)| &**path);
        if judged.iter().all(|(_, judged)| judged.devices.is_empty())
            && let Some(message) = inputs::missing_device(paths, device)
        {
            bail!(message);
        }
        return Ok((judged.into_iter().map(|(_, judged)| judged).collect(), unreadable));
    }
    let (kept, empty): (Vec<_>, Vec<_>) = judged.into_iter().partition(|(_, judged)| !judged.devices.is_empty());
    unreadable.extend(
        empty.into_iter().map(|(path, _)| Unreadable { path, message: "no memory and no trace to check".to_owned() }),
    );
    Ok((kept.into_iter().map(|(_, judged)| judged).collect(), unreadable))
}

//! `oomscope check`

mod args;
mod baseline;
mod limits;
mod repository;

use anyhow::bail;

pub(super) use self::args::Check;
use self::baseline::{baseline, name_of, save_baseline};
use self::repository::{repository, source};
use super::args::Format;
use super::config::{CONFIG, Config, EXAMPLE};
use super::exit::{Done, complain};
use super::inputs;
use super::output::Output;
use crate::analysis::Unreadable;
use crate::compare::gate::{AllowMissing, CheckReport, Gate, Judged, Limit, judge};
use crate::output::formats;
use crate::output::report;

/// Reads, judges and writes.
pub(super) fn run(args: &Check) -> anyhow::Result<Done> {
    if args.print_config {
        let output = Output::open(args.output.as_deref())?;
        output.write(&EXAMPLE)?;
        return Ok(Done::Well);
    }
    if let Some(file) = &args.save_baseline {
        return save_baseline(args, file);
    }
    let (config, config_path) = Config::find(args.config.as_deref())?;
    let flags = args.limits.limits();
    let limits: Vec<Limit> =
        config.limits.set_limits().chain(flags.iter().map(|(limit, _)| limit)).collect();
    if limits.is_empty() {
        bail!(
            "no limit to check: give one (--max-ooms 0) or write {CONFIG} \
             (oomscope check --print-config shows how)"
        );
    }
    let mut inputs = inputs::expand(&args.snapshots)?;
    if let Some(path) = &args.output {
        inputs::spare(&mut inputs, path)?;
        config_path.as_ref().map_or(Ok(()), |config| inputs::spare_one(config, path))?;
    }
    let baseline = baseline(args, &config, config_path.as_deref(), &limits)?;
    let output = Output::open(args.output.as_deref())?;
    let root = repository();
    let gate = Gate {
        rules: &config.limits,
        flags,
        baseline: baseline.as_ref(),
        is_only: inputs.len() == 1,
        is_whole: inputs.len() > 1 || args.snapshots.iter().any(|path| path.is_dir()),
        allow_missing: &AllowMissing::new(&args.allow_missing),
        device: args.device,
        minor: args.torch_version,
        source: &|file| source(&root, file),
    };
    let (judged, unreadable) = inputs::read_all(&inputs, |snapshot, path, _| {
        (path.to_owned(), judge(snapshot, path, &name_of(path, &args.snapshots), &gate))
    });
    let (judged, unreadable) = with_something_to_check(judged, unreadable, args.device)?;
    if judged.iter().all(|one| one.findings.is_empty()) && unreadable.is_empty() {
        bail!("no limit applies to any of the snapshots");
    }
    let config = config_path.map(|path| path.display().to_string());
    let names = unreadable.iter().map(|file| name_of(&file.path, &args.snapshots)).collect();
    let missing = gate.not_checked(&judged, &names);
    let report = CheckReport::new(judged, missing, config, unreadable, args.ranks);
    for (path, message) in report.not_checked() {
        complain(&format!("{path}: {message}"));
    }
    write(&report, args.format, output)?;
    Ok(match (report.unreadable.is_empty(), report.passed) {
        (false, _) => Done::Partly,
        (true, false) => Done::Failed,
        (true, true) => Done::Well,
    })
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

/// A snapshot without a device to check must not pass unseen. Where only one device is asked for, one of
/// the snapshots has to have it, and the others are noted.
fn with_something_to_check(
    judged: Vec<(String, Judged)>,
    mut unreadable: Vec<Unreadable>,
    device: Option<u64>,
) -> anyhow::Result<(Vec<Judged>, Vec<Unreadable>)> {
    if let Some(device) = device {
        let paths = judged.iter().map(|(path, _)| &**path);
        if judged.iter().all(|(_, one)| one.devices.is_empty())
            && let Some(message) = inputs::lacking(paths, device)
        {
            bail!(message);
        }
        return Ok((judged.into_iter().map(|(_, one)| one).collect(), unreadable));
    }
    let (kept, empty): (Vec<_>, Vec<_>) =
        judged.into_iter().partition(|(_, one)| !one.devices.is_empty());
    unreadable.extend(empty.into_iter().map(|(path, _)| Unreadable {
        path,
        message: "no memory and no trace to check".to_owned(),
    }));
    Ok((kept.into_iter().map(|(_, one)| one).collect(), unreadable))
}

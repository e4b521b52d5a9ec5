//! `oomscope check`

use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};

use super::args::parse_release;
use super::exit::{Done, complain};
use super::inputs::{self, Read};
use super::output::Output;
use crate::analysis::{Unreadable, inferred};
use crate::gate::{
    Amount, Baseline, CheckReport, Config, EXAMPLE, Gate, Judged, Limits, Peaks, Threshold, judge,
    peaks,
};
use crate::replay::Known;
use crate::report;
use crate::units::{counted, parse_ratio, parse_size};

/// The configuration that is looked for.
const CONFIG: &str = "oomscope.toml";

/// Hold snapshots against limits, for CI: exit code 1 and the lines to look at when one does not hold
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope check --max-ooms 0 --max-gap-ratio 30% snapshot.pickle
  oomscope check --print-config > oomscope.toml       then edit: the limits of your job
  oomscope check ranks/                               64 ranks, limits of oomscope.toml
  oomscope check --save-baseline memory-baseline.json snapshot.pickle
  oomscope check --baseline memory-baseline.json --max-growth-ratio 5% snapshot.pickle
  oomscope check --format github snapshot.pickle      annotations in GitHub Actions

Growth compares peaks replayed from an empty pool: what ran before in the same process, and what it left \
cached, does not count. A limit on something that the file cannot tell (a peak, without a recorded \
history) does not hold.

Exit codes: 0 every limit holds; 1 one does not; 2 wrong usage, or a file that cannot be read.")]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
pub(super) struct Check {
    /// Snapshots: files (.pickle, .pkl, .json, each also .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required_unless_present = "print_config", value_name = "SNAPSHOT")]
    snapshots: Vec<PathBuf>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Compare with a snapshot, a directory of them, or what --save-baseline or --format json wrote
    #[arg(long, value_name = "PATH", help_heading = "Growth")]
    baseline: Option<PathBuf>,

    /// Write the peaks of the snapshots to FILE, to compare with later, and check nothing
    #[arg(
        long,
        value_name = "FILE.json",
        help_heading = "Growth",
        conflicts_with_all = ["LimitArgs", "baseline", "config", "format", "output"]
    )]
    save_baseline: Option<PathBuf>,

    /// Read limits from FILE instead of the oomscope.toml found from here upwards
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print an oomscope.toml with every key, explained
    #[arg(long)]
    print_config: bool,

    /// Only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// The PyTorch release that recorded the snapshots, instead of what their keys tell
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    /// Write the result to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A page for a person
    Human,
    /// The stable machine-readable form
    Json,
    /// Workflow commands of GitHub Actions: annotations on lines of code
    Github,
    /// JUnit XML, a test a limit
    Junit,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// For a step summary or a pull request
    Markdown,
}

/// A flag for every [`Threshold`]; each wins over the file's limit that fails.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits (a RATIO is 0.3 or 30%)")]
struct LimitArgs {
    /// Reserved memory that the program does not hold, at the snapshot
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_gap_ratio: Option<f64>,

    /// Reserved memory that is free in segments that are partly in use
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_inactive_split_ratio: Option<f64>,

    /// Reserved memory that is free and that empty_cache() would not give back
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_stranded_ratio: Option<f64>,

    /// Free memory outside the largest free block
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_external_ratio: Option<f64>,

    /// Blocks in use: more than the program asked for
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_rounding_ratio: Option<f64>,

    /// Reserved memory at the snapshot
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    max_reserved: Option<u64>,

    /// Reserved memory at its highest
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    max_peak_reserved: Option<u64>,

    /// Allocated memory at its highest
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    max_peak_allocated: Option<u64>,

    /// Requests that failed
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_ooms: Option<u64>,

    /// Requests for which everything cached was given back first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_retries: Option<u64>,

    /// Growth of peak allocated and of peak reserved memory over the baseline
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        allow_negative_numbers = true,
        help_heading = "Growth"
    )]
    max_growth: Option<u64>,

    /// The same as a part of the baseline's peak
    #[arg(
        long,
        value_name = "RATIO",
        value_parser = parse_ratio,
        allow_negative_numbers = true,
        help_heading = "Growth"
    )]
    max_growth_ratio: Option<f64>,
}

impl LimitArgs {
    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        let ratio = |ratio: Option<f64>| ratio.map(Amount::Ratio);
        let bytes = |bytes: Option<u64>| bytes.map(Amount::bytes);
        let count = |count: Option<u64>| count.map(Amount::Count);
        for (threshold, most) in [
            (Threshold::GapRatio, ratio(self.max_gap_ratio)),
            (Threshold::InactiveSplitRatio, ratio(self.max_inactive_split_ratio)),
            (Threshold::StrandedRatio, ratio(self.max_stranded_ratio)),
            (Threshold::ExternalRatio, ratio(self.max_external_ratio)),
            (Threshold::RoundingRatio, ratio(self.max_rounding_ratio)),
            (Threshold::Reserved, bytes(self.max_reserved)),
            (Threshold::PeakReserved, bytes(self.max_peak_reserved)),
            (Threshold::PeakAllocated, bytes(self.max_peak_allocated)),
            (Threshold::Ooms, count(self.max_ooms)),
            (Threshold::Retries, count(self.max_retries)),
            (Threshold::Growth, bytes(self.max_growth)),
            (Threshold::GrowthRatio, ratio(self.max_growth_ratio)),
        ] {
            if let Some(most) = most {
                limits.set(threshold, most);
            }
        }
        limits
    }
}

/// Reads, judges and writes.
pub(super) fn run(args: &Check) -> anyhow::Result<Done> {
    if args.print_config {
        let output = Output::open(args.output.as_deref())?;
        output.write(EXAMPLE)?;
        return Ok(Done::Well);
    }
    if let Some(file) = &args.save_baseline {
        return save_baseline(args, file);
    }
    let (config, config_path) = configuration(args.config.as_deref())?;
    let flags = args.limits.limits();
    let thresholds: Vec<Threshold> =
        config.thresholds().chain(flags.iter().map(|(threshold, _)| threshold)).collect();
    if thresholds.is_empty() {
        bail!(
            "no limit to check: give one (--max-ooms 0) or write {CONFIG} \
             (oomscope check --print-config shows how)"
        );
    }
    let mut inputs = inputs::expand(&args.snapshots)?;
    if let Some(path) = &args.output {
        inputs::spare(&mut inputs, path)?;
    }
    let baseline = baseline(args, &config, config_path.as_deref(), &thresholds)?;
    let output = Output::open(args.output.as_deref())?;
    let root = repository();
    let gate = Gate {
        config: &config,
        flags: &flags,
        baseline: baseline.as_ref(),
        is_only: inputs.len() == 1,
        device: args.device,
        minor: args.torch_version,
        source: &|file| source(&root, file),
    };
    let (judged, unreadable) = read(&inputs, |snapshot, path| {
        judge(snapshot, path, &name_of(path, &args.snapshots), &gate)
    });
    let (judged, unreadable) = with_something_to_check(judged, unreadable, args.device);
    let is_checked = judged.iter().any(|(_, one)| !one.findings.is_empty());
    if !is_checked && unreadable.is_empty() {
        bail!("no limit applies to any of the snapshots");
    }
    let judged = judged.into_iter().map(|(_, one)| one).collect();
    let report = CheckReport::new(judged, config_path.map(|p| p.display().to_string()), unreadable);
    for file in &report.unreadable {
        complain(&format!("{}: {}", file.path, file.message));
    }
    let text = text(&report, args.format, &output)?;
    output.write(&text)?;
    Ok(match (report.unreadable.is_empty(), report.passed) {
        (false, _) => Done::Partly,
        (true, false) => Done::Failed,
        (true, true) => Done::Well,
    })
}

fn text(report: &CheckReport, format: Format, output: &Output) -> anyhow::Result<String> {
    Ok(match format {
        Format::Human => report::check_page(report, output.style()),
        Format::Json => report::json(report)?,
        Format::Github => report::github(report),
        Format::Junit => report::junit(report),
        Format::Sarif => report::json(&report::sarif(report, env!("CARGO_PKG_VERSION")))?,
        Format::Markdown => report::check_markdown(report),
    })
}

/// Reads all inputs: what `use_it` makes of each with its path, and those that cannot be read.
fn read<T: Send>(
    inputs: &[inputs::Input],
    use_it: impl Fn(&crate::snapshot::Snapshot, &str) -> T + Sync,
) -> (Vec<(String, T)>, Vec<Unreadable>) {
    let (mut done, mut unreadable, mut skipped) = (Vec::new(), Vec::new(), 0);
    let all =
        inputs::read_all(inputs, |snapshot, path, _| (path.to_owned(), use_it(snapshot, path)));
    for one in all {
        match one {
            Read::Done(one) => done.push(one),
            Read::Failed(error) => unreadable.push(error),
            Read::Skipped => skipped += 1,
        }
    }
    if skipped > 0 {
        complain(&format!("{} passed over: not a snapshot", counted(skipped, ".json file")));
    }
    (done, unreadable)
}

/// A snapshot without a device to check must not pass unseen.
fn with_something_to_check(
    judged: Vec<(String, Judged)>,
    mut unreadable: Vec<Unreadable>,
    device: Option<u64>,
) -> (Vec<(String, Judged)>, Vec<Unreadable>) {
    let of = device.map_or_else(String::new, |device| format!(" of device {device}"));
    let (kept, empty): (Vec<_>, Vec<_>) = judged.into_iter().partition(|(_, one)| one.devices > 0);
    unreadable.extend(empty.into_iter().map(|(path, _)| Unreadable {
        path,
        message: format!("no memory and no trace{of} to check"),
    }));
    (kept, unreadable)
}

/// The limits of `path`, or of the file found from the working directory upwards; with its path.
fn configuration(path: Option<&Path>) -> anyhow::Result<(Config, Option<PathBuf>)> {
    let Some(path) = path.map(Path::to_owned).or_else(find_configuration) else {
        return Ok((Config::default(), None));
    };
    let shown = path.display();
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{shown}: cannot be read"))?;
    let config = Config::parse(&text).map_err(|error| anyhow!("{shown}:{error}"))?;
    Ok((config, Some(path)))
}

/// `oomscope.toml`, or the first of `../oomscope.toml`, `../../oomscope.toml`, .. that is there.
fn find_configuration() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let up = |levels: usize| (0..levels).map(|_| "..").collect::<PathBuf>().join(CONFIG);
    (0..here.ancestors().count()).map(up).find(|path| path.is_file())
}

/// The baseline, where there is one and something is compared with it.
fn baseline(
    args: &Check,
    config: &Config,
    config_path: Option<&Path>,
    thresholds: &[Threshold],
) -> anyhow::Result<Option<Baseline>> {
    let beside = |name: &String| {
        let directory = config_path.and_then(Path::parent).unwrap_or(Path::new(""));
        directory.join(name)
    };
    let path = args.baseline.clone().or_else(|| config.baseline.as_ref().map(beside));
    let compared = thresholds.iter().find(|threshold| threshold.needs_baseline());
    match (path, compared) {
        (None, None) => Ok(None),
        (None, Some(threshold)) => bail!(
            "{} has nothing to compare with: give --baseline (oomscope check --save-baseline writes one)",
            threshold.key()
        ),
        (Some(path), None) => bail!(
            "the baseline {} would be compared with nothing: set max-growth-ratio or max-growth",
            path.display()
        ),
        (Some(path), Some(_)) => read_baseline(&path, args.torch_version).map(Some),
    }
}

fn read_baseline(path: &Path, minor: Option<u32>) -> anyhow::Result<Baseline> {
    let shown = path.display();
    if path.extension().is_some_and(|extension| extension == "json") {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("the baseline {shown} cannot be read"))?;
        if Baseline::schema_of(&text).is_some() {
            return Baseline::parse(&text).map_err(|error| anyhow!("the baseline {shown} {error}"));
        }
    }
    let rows = measure(&[path.to_owned()], None, minor)
        .with_context(|| format!("the baseline {shown} cannot be used"))?;
    Ok(Baseline::new(rows))
}

/// The peaks of all snapshots, each of which must have some.
fn measure(
    paths: &[PathBuf],
    device: Option<u64>,
    minor: Option<u32>,
) -> anyhow::Result<Vec<Peaks>> {
    let inputs = inputs::expand(paths)?;
    let known = Known { minor, capacity: None };
    let (measured, unreadable) = read(&inputs, |snapshot, path| {
        peaks(snapshot, &name_of(path, paths), &inferred(snapshot, device, known))
    });
    if let Some(file) = unreadable.first() {
        bail!("{}: {}", file.path, file.message);
    }
    if let Some((path, _)) = measured.iter().find(|(_, rows)| rows.is_empty()) {
        bail!("{path}: no history was recorded, so it has no peaks to compare with");
    }
    Ok(measured.into_iter().flat_map(|(_, rows)| rows).collect())
}

fn save_baseline(args: &Check, file: &Path) -> anyhow::Result<Done> {
    let rows = measure(&args.snapshots, args.device, args.torch_version)?;
    let devices = counted(rows.len() as u64, "device");
    let output = Output::open(Some(file))?;
    output.write(&report::json(&Baseline::new(rows))?)?;
    let said = format!("{}: the peaks of {devices}\n", file.display());
    Output::open(None)?.write(&said)?;
    Ok(Done::Well)
}

/// What a snapshot is called in a baseline: its path in the directory that was named, else its file name.
fn name_of(path: &str, named: &[PathBuf]) -> String {
    let path = Path::new(path);
    let inside = named.iter().filter(|dir| dir.as_path() != path);
    let inside = inside.filter_map(|dir| path.strip_prefix(dir).ok()).next();
    let name = inside.unwrap_or_else(|| path.file_name().map_or(path, Path::new));
    with_slashes(name)
}

fn with_slashes(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// The root of the repository around the working directory; that itself where there is none.
fn repository() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors()
        .find(|dir| dir.join(".git").exists())
        .map_or_else(|| here.clone(), Path::to_owned)
}

/// Where a file that a stack names is in the repository: under its root, else (recorded in a container, or
/// from another directory) the longest end of its path that is there.
fn source(root: &Path, file: &str) -> Option<String> {
    let path = Path::new(file);
    let path = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> =
        path.components().skip_while(|part| !matches!(part, Component::Normal(_))).collect();
    if parts.iter().any(|part| !matches!(part, Component::Normal(_))) {
        return None;
    }
    let ends = (0..parts.len()).map(|from| parts.iter().skip(from).collect::<PathBuf>());
    ends.into_iter().find(|end| root.join(end).is_file()).map(|end| with_slashes(&end))
}

//! Reads and writes the baseline that growth is compared with.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde::de::IgnoredAny;

use super::super::config::Config;
use super::super::exit::Exit;
use super::super::inputs::{self, Input, with_slashes};
use super::super::output::Output;
use super::args::Check;
use crate::base::input::{Source, read_text_file};
use crate::base::units::counted;
use crate::compare::gate::{Baseline, BaselinePeaks, Limit, peaks};
use crate::output::formats;
use crate::study::{Scope, Study};

/// The path of the baseline of `args`, or else of `config`.
pub(super) fn baseline_path(args: &Check, config: &Config, config_path: Option<&Path>) -> Option<PathBuf> {
    let in_config_directory = |name: &String| {
        let directory = config_path.and_then(Path::parent).unwrap_or(Path::new(""));
        directory.join(name)
    };
    args.baseline.clone().or_else(|| config.baseline.as_ref().map(in_config_directory))
}

/// Reads the baseline of `args` or `config`. There must be one if and only if a limit on growth is set.
pub(super) fn load_baseline(
    args: &Check,
    config: &Config,
    config_path: Option<&Path>,
    limits: &[Limit],
) -> anyhow::Result<Option<Baseline>> {
    let path = baseline_path(args, config, config_path);
    let growth_limit = limits.iter().find(|limit| limit.needs_baseline());
    match (path, growth_limit) {
        (None, None) => Ok(None),
        (None, Some(limit)) => {
            bail!("{} needs a baseline: give --baseline (oomscope check --save-baseline writes one)", limit.key())
        }
        (Some(path), None) => {
            if let Some(error) = json_error(&path) {
                bail!("the baseline {} is not JSON: {error}", path.display());
            }
            bail!("the baseline {} is not used: set max-growth-ratio or max-growth", path.display())
        }
        (Some(path), Some(_)) => {
            if inputs::is_stdin(&path) && args.snapshots.iter().any(|path| inputs::is_stdin(path)) {
                bail!("-: standard input cannot be both the baseline and a snapshot");
            }
            args.output.as_ref().map_or(Ok(()), |output| inputs::refuse_output_over_input(&path, output))?;
            read_baseline(&path, args.torch_version).map(Some)
        }
    }
}

/// Why a file that is named `.json` is none, such as one with the marks of a merge conflict.
fn json_error(path: &Path) -> Option<serde_json::Error> {
    let text = path.extension().filter(|extension| *extension == "json").and_then(|_| read_text_file(path).ok())?;
    serde_json::from_str::<IgnoredAny>(&text).err()
}

fn read_baseline(path: &Path, minor: Option<u32>) -> anyhow::Result<Baseline> {
    let shown = path.display();
    if path.extension().is_some_and(|extension| extension == "json") {
        // It may also be a snapshot, of any size.
        let source = Source::open(path);
        let source =
            source.with_context(|| format!("the baseline {shown} cannot be read (--save-baseline writes one)"))?;
        if let Some(text) = str::from_utf8(&source).ok().filter(|text| Baseline::schema_of(text).is_some()) {
            return Baseline::parse(text).map_err(|error| anyhow!("the baseline {shown} {error}"));
        }
    }
    let paths = [path.to_owned()];
    let rows = inputs::expand_paths(&paths)
        .and_then(|inputs| measure_peaks(&inputs, &paths, None, minor))
        .with_context(|| format!("the baseline {shown} cannot be used"))?;
    Ok(Baseline::new(rows))
}

/// The peaks of all snapshots, which were found in `paths`. A snapshot without peaks is an error.
fn measure_peaks(
    inputs: &[Input],
    paths: &[PathBuf],
    device: Option<u64>,
    minor: Option<u32>,
) -> anyhow::Result<Vec<BaselinePeaks>> {
    let scope = Scope { device, minor, ..Scope::default() };
    let (measured, unreadable) = inputs::read_all(inputs, |snapshot, path, _| {
        (path.to_owned(), peaks(&Study::new(snapshot, scope), &baseline_name(path, paths)))
    });
    if let Some(file) = unreadable.first() {
        bail!("{}: {}", file.path, file.message);
    }
    if measured.is_empty() {
        bail!("no snapshot among the files given");
    }
    if let Some((path, _)) = measured.iter().find(|(_, rows)| rows.is_empty()) {
        bail!("{path}: no history was recorded, so it has no peaks to compare");
    }
    Ok(measured.into_iter().flat_map(|(_, rows)| rows).collect())
}

pub(super) fn save_baseline(args: &Check, file: &Path) -> anyhow::Result<Exit> {
    let mut inputs = inputs::expand_paths(&args.snapshots)?;
    inputs::refuse_output_over_inputs(&mut inputs, file)?;
    let rows = measure_peaks(&inputs, &args.snapshots, args.device, args.torch_version)?;
    let devices = counted(rows.len() as u64, "device");
    let output = Output::open(Some(file))?;
    output.write(&formats::json(&Baseline::new(rows))?)?;
    let message = format!("{}: the peaks of {devices}\n", file.display());
    Output::open(None)?.write(&message)?;
    Ok(Exit::Success)
}

/// The name of a snapshot in a baseline: its path relative to the named directory, or its file name.
pub(super) fn baseline_name(path: &str, named: &[PathBuf]) -> String {
    let path = Path::new(path);
    let mut inside = named.iter().filter(|dir| dir.as_path() != path);
    let inside = inside.find_map(|dir| path.strip_prefix(dir).ok());
    let name = inside.unwrap_or_else(|| path.file_name().map_or(path, Path::new));
    with_slashes(name)
}

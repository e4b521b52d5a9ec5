//! What growth is measured against: where it comes from, and how it is saved.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::super::config::Config;
use super::super::exit::Done;
use super::super::inputs::{self, Input, with_slashes};
use super::super::output::Output;
use super::args::Check;
use crate::base::units::counted;
use crate::compare::gate::{Baseline, Limit, Peaks, peaks};
use crate::output::formats;
use crate::study::{Scope, Study};

/// The baseline, where there is one and something is compared with it.
pub(super) fn baseline(
    args: &Check,
    config: &Config,
    config_path: Option<&Path>,
    limits: &[Limit],
) -> anyhow::Result<Option<Baseline>> {
    let beside = |name: &String| {
        let directory = config_path.and_then(Path::parent).unwrap_or(Path::new(""));
        directory.join(name)
    };
    let path = args.baseline.clone().or_else(|| config.baseline.as_ref().map(beside));
    let compared = limits.iter().find(|limit| limit.needs_baseline());
    match (path, compared) {
        (None, None) => Ok(None),
        (None, Some(limit)) => bail!(
            "{} has nothing to compare with: give --baseline (oomscope check --save-baseline writes one)",
            limit.key()
        ),
        (Some(path), None) => bail!(
            "the baseline {} would be compared with nothing: set max-growth-ratio or max-growth",
            path.display()
        ),
        (Some(path), Some(_)) => {
            if inputs::is_stdin(&path) && args.snapshots.iter().any(|path| inputs::is_stdin(path)) {
                bail!("-: standard input cannot be both the baseline and a snapshot");
            }
            args.output.as_ref().map_or(Ok(()), |output| inputs::spare_one(&path, output))?;
            read_baseline(&path, args.torch_version).map(Some)
        }
    }
}

fn read_baseline(path: &Path, minor: Option<u32>) -> anyhow::Result<Baseline> {
    let shown = path.display();
    if path.extension().is_some_and(|extension| extension == "json") {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| {
            format!("the baseline {shown} cannot be read (--save-baseline writes one)")
        })?;
        if Baseline::schema_of(&text).is_some() {
            return Baseline::parse(&text).map_err(|error| anyhow!("the baseline {shown} {error}"));
        }
    }
    let paths = [path.to_owned()];
    let rows = inputs::expand(&paths)
        .and_then(|inputs| measure(&inputs, &paths, None, minor))
        .with_context(|| format!("the baseline {shown} cannot be used"))?;
    Ok(Baseline::new(rows))
}

/// The peaks of all snapshots, each of which must have some; they were found in `paths`.
fn measure(
    inputs: &[Input],
    paths: &[PathBuf],
    device: Option<u64>,
    minor: Option<u32>,
) -> anyhow::Result<Vec<Peaks>> {
    let scope = Scope { device, minor, ..Scope::default() };
    let (measured, unreadable) = inputs::read_all(inputs, |snapshot, path, _| {
        (path.to_owned(), peaks(&Study::new(snapshot, scope), &name_of(path, paths)))
    });
    if let Some(file) = unreadable.first() {
        bail!("{}: {}", file.path, file.message);
    }
    if measured.is_empty() {
        bail!("no snapshot among the files given");
    }
    if let Some((path, _)) = measured.iter().find(|(_, rows)| rows.is_empty()) {
        bail!("{path}: no history was recorded, so it has no peaks to compare with");
    }
    Ok(measured.into_iter().flat_map(|(_, rows)| rows).collect())
}

/// Writes the peaks of the snapshots.
pub(super) fn save_baseline(args: &Check, file: &Path) -> anyhow::Result<Done> {
    let mut inputs = inputs::expand(&args.snapshots)?;
    inputs::spare(&mut inputs, file)?;
    let rows = measure(&inputs, &args.snapshots, args.device, args.torch_version)?;
    let devices = counted(rows.len() as u64, "device");
    let output = Output::open(Some(file))?;
    output.write(&formats::json(&Baseline::new(rows))?)?;
    let said = format!("{}: the peaks of {devices}\n", file.display());
    Output::open(None)?.write(&said)?;
    Ok(Done::Well)
}

/// What a snapshot is called in a baseline: its path in the directory that was named, else its file name.
pub(super) fn name_of(path: &str, named: &[PathBuf]) -> String {
    let path = Path::new(path);
    let mut inside = named.iter().filter(|dir| dir.as_path() != path);
    let inside = inside.find_map(|dir| path.strip_prefix(dir).ok());
    let name = inside.unwrap_or_else(|| path.file_name().map_or(path, Path::new));
    with_slashes(name)
}

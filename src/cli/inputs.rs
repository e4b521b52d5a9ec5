//! From the paths that were typed to snapshots read in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, anyhow, bail};
use rayon::prelude::*;
use same_file::is_same_file;

use super::exit::complain;
use super::progress::Progress;
use crate::analysis::Unreadable;
use crate::base::input::Source;
use crate::base::units::counted;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::study::{DeviceStudy, Study};

/// A file to read.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    /// Found in a directory rather than named: it may turn out to be something else.
    found: bool,
}

/// What came of a file.
pub(super) enum Read<T> {
    Done(T),
    Failed(Unreadable),
    /// A JSON file beside the snapshots that is none.
    Skipped,
}

/// Whether `path` stands for standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Every file that `paths` name, those of a directory in the order of their names.
pub(super) fn expand(paths: &[PathBuf]) -> anyhow::Result<Vec<Input>> {
    let mut inputs = Vec::new();
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        bail!("-: standard input can be read only once");
    }
    for path in paths {
        if !path.is_dir() {
            inputs.push(Input { path: path.clone(), found: false });
            continue;
        }
        let before = inputs.len();
        find(path, &mut inputs).with_context(|| format!("{}: cannot be listed", path.display()))?;
        if inputs.len() == before {
            bail!(
                "{}: holds no snapshot (no .pickle, .pkl or .json, plain, .gz or .zst)",
                path.display()
            );
        }
    }
    Ok(inputs)
}

/// Takes the file that the result goes to out of what was found in directories where it may be the result
/// of an earlier run, and refuses it where it was named or is a pickle: it would be overwritten before it is
/// read.
pub(super) fn spare(inputs: &mut Vec<Input>, output: &Path) -> anyhow::Result<()> {
    // Not by name: links, hard ones too, lead to one file.
    let is_output = |input: &Input| is_same_file(&input.path, output).unwrap_or(false);
    let is_meant = |input: &&Input| !input.found || !is_named_json(&input.path);
    if let Some(meant) = inputs.iter().filter(is_meant).find(|input| is_output(input)) {
        bail!("{}: is an input; the output would overwrite it", meant.path.display());
    }
    inputs.retain(|input| !is_output(input));
    Ok(())
}

/// Whether both paths lead to one file, there or not; a device such as `/dev/null` takes whatever it gets.
pub(super) fn are_one(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| {
        std::path::absolute(path).ok().map(|path| {
            let directory = path.parent().and_then(|parent| parent.canonicalize().ok());
            (directory, path.file_name().map(OsStr::to_owned))
        })
    };
    match (one.exists(), other.exists()) {
        (true, true) => one.is_file() && is_same_file(one, other).unwrap_or(false),
        (false, false) => whole(one) == whole(other),
        _ => false,
    }
}

/// Refuses to write to a file that is to be read.
pub(super) fn spare_one(input: &Path, output: &Path) -> anyhow::Result<()> {
    let mut inputs = vec![Input { path: input.to_owned(), found: false }];
    spare(&mut inputs, output)
}

/// Every snapshot in `directory` by the name of its rank: the path in there, without an ending of compression.
/// What goes to `output` is left out.
pub(super) fn ranks(
    directory: &Path,
    output: Option<&Path>,
) -> anyhow::Result<BTreeMap<String, Input>> {
    let mut inputs = expand(&[directory.to_owned()])?;
    if let Some(output) = output {
        spare(&mut inputs, output)?;
    }
    let mut ranks: BTreeMap<String, Input> = BTreeMap::new();
    for input in inputs {
        let inside = input.path.strip_prefix(directory).unwrap_or(&input.path);
        let name = with_slashes(&without_compression(inside));
        if let Some(other) = ranks.get(&name) {
            bail!(
                "{} and {} are the same rank: keep one of them",
                other.path.display(),
                input.path.display()
            );
        }
        ranks.insert(name, input);
    }
    Ok(ranks)
}

/// The parts of `path` with slashes between them, on every system: names in a file that another system may read.
pub(super) fn with_slashes(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

fn find(directory: &Path, inputs: &mut Vec<Input>) -> std::io::Result<()> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        // Links to directories are not followed: they may lead in circles.
        if path.is_dir() && !path.is_symlink() {
            find(&path, inputs)?;
        } else if is_named_like_a_snapshot(&path) && path.is_file() {
            inputs.push(Input { path, found: true });
        }
    }
    Ok(())
}

fn is_named_json(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".json"))
}

fn ending(path: &Path) -> Option<OsString> {
    path.extension().map(OsStr::to_ascii_lowercase)
}

/// `path` without `.gz` or `.zst`.
fn without_compression(path: &Path) -> PathBuf {
    match ending(path) {
        Some(e) if e == "gz" || e == "zst" => path.with_extension(""),
        _ => path.to_owned(),
    }
}

fn is_named_like_a_snapshot(path: &Path) -> bool {
    ending(&without_compression(path)).is_some_and(|e| e == "pickle" || e == "pkl" || e == "json")
}

/// Reads every input and hands it to `use_it` with its path and stored size, several at a time;
/// results, and the files that cannot be read, come in the order of the inputs.
pub(super) fn read_all<T: Send>(
    inputs: &[Input],
    use_it: impl Fn(&Snapshot, &str, u64) -> T + Sync,
) -> (Vec<T>, Vec<Unreadable>) {
    let total = inputs.iter().filter_map(|i| i.path.metadata().ok()).map(|m| m.len()).sum();
    let progress = Progress::new(total, inputs.len());
    let read: Vec<Read<T>> =
        inputs.par_iter().map(|input| read(input, &progress, &use_it)).collect();
    drop(progress);
    let is_done = |(_, one): &(&Input, &Read<T>)| matches!(one, Read::Done(_));
    let ranks = RankNames::of(inputs.iter().zip(&read).filter(is_done).map(|(input, _)| input));
    let (mut done, mut unreadable, mut skipped) = (Vec::new(), Vec::new(), 0);
    for (one, input) in read.into_iter().zip(inputs) {
        match one {
            Read::Done(one) => done.push(one),
            Read::Failed(error) => unreadable.push(error),
            Read::Skipped if ranks.has_one_like(input) => unreadable.push(Unreadable {
                path: input.path.display().to_string(),
                message: "is no snapshot, though it is named like the other ranks".to_owned(),
            }),
            Read::Skipped => skipped += 1,
        }
    }
    if skipped > 0 {
        complain(&format!("{} passed over: not a snapshot", counted(skipped, ".json file")));
    }
    (done, unreadable)
}

/// What the snapshots of a job are called, to know its other ranks by.
struct RankNames {
    /// Directory and name up to the first dot.
    names: BTreeSet<(PathBuf, String)>,
    /// The names with `#` for every number.
    patterns: BTreeSet<String>,
}

impl RankNames {
    fn of<'a>(snapshots: impl Iterator<Item = &'a Input>) -> Self {
        let names: BTreeSet<_> = snapshots.map(rank_name).collect();
        let patterns = names.iter().map(|(_, name)| without_numbers(name)).collect();
        Self { names, patterns }
    }

    /// Whether `input` is named like them, and is not what lies beside one of them under its name.
    fn has_one_like(&self, input: &Input) -> bool {
        let name = rank_name(input);
        self.patterns.contains(&without_numbers(&name.1)) && !self.names.contains(&name)
    }
}

fn rank_name(input: &Input) -> (PathBuf, String) {
    let name = input.path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default().to_owned();
    (input.path.parent().unwrap_or(Path::new("")).to_owned(), name)
}

fn without_numbers(name: &str) -> String {
    let mut pattern: String =
        name.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    while pattern.contains("##") {
        pattern = pattern.replace("##", "#");
    }
    pattern
}

/// Reads every pair, several at a time, and hands both to `use_it` with their paths and stored sizes; results
/// come in the order of the pairs.
pub(super) fn read_pairs<T: Send>(
    pairs: &[[Input; 2]],
    use_it: impl Fn([(&Snapshot, &str, u64); 2]) -> T + Sync,
) -> Vec<Read<T>> {
    let total =
        pairs.iter().flatten().filter_map(|i| i.path.metadata().ok()).map(|m| m.len()).sum();
    let progress = Progress::new(total, 2 * pairs.len());
    let read_pair = |[before, after]: &[Input; 2]| {
        let both = read(before, &progress, |first, first_path, first_bytes| {
            read(after, &progress, |second, path, bytes| {
                use_it([(first, first_path, first_bytes), (second, path, bytes)])
            })
        });
        match both {
            Read::Done(second) => second,
            Read::Failed(error) => Read::Failed(error),
            Read::Skipped => Read::Skipped,
        }
    };
    pairs.par_iter().map(read_pair).collect()
}

/// That the snapshots at `paths`, if any, do not have `device`.
pub(super) fn lacking<'a>(mut paths: impl Iterator<Item = &'a str>, device: u64) -> Option<String> {
    let first = paths.next()?;
    let others = match paths.count() {
        0 => String::new(),
        n => format!(" and {}", counted(n as u64, "other snapshot")),
    };
    Some(format!("{first}{others}: no memory and no trace of device {device}"))
}

/// The one snapshot in `path`, if that is a directory, as `run` and `dump` write for one process; else `path`.
pub(super) fn only_one(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    match expand(&[path.to_owned()])?.as_slice() {
        [first, _, ..] => bail!(
            "{}: holds several snapshots; name one of them, such as {}",
            path.display(),
            first.path.display()
        ),
        [only] => Ok(only.path.clone()),
        [] => Ok(path.to_owned()),
    }
}

/// Reads the one snapshot at `path`.
pub(super) fn read_one(path: &Path) -> anyhow::Result<Snapshot> {
    if path.is_dir() {
        bail!("{}: is a directory; this command takes one snapshot", path.display());
    }
    let total = path.metadata().map_or(0, |m| m.len());
    let progress = Progress::new(total, 1);
    // Its sentence tells the cause already; a context would tell it again.
    let source = Source::open(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let snapshot = Snapshot::read(&source, &|offset| progress.at(offset.min(total)));
    source.check_unchanged().map_err(|error| anyhow!("{}: {error}", path.display()))?;
    snapshot.map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// The first device of `study` that has a trace: without one there is nothing to replay, and nothing to vouch
/// for.
pub(super) fn first_traced<'s, 'a>(
    study: &'s Study<'a>,
    path: &str,
) -> anyhow::Result<DeviceStudy<'s, 'a>> {
    let of = study.scope().device.map_or_else(String::new, |device| format!(" of device {device}"));
    let mut traced = study.devices().filter(|device| !device.device().is_empty());
    traced.next().ok_or_else(|| {
        anyhow!("{path}: no trace{of} to replay; `oomscope analyze` shows what there is")
    })
}

fn read<T>(
    input: &Input,
    progress: &Progress,
    use_it: impl Fn(&Snapshot, &str, u64) -> T,
) -> Read<T> {
    let path = input.path.display().to_string();
    let failed = |message: String| Read::Failed(Unreadable { path: path.clone(), message });
    let source = match Source::open(&input.path) {
        Ok(source) => source,
        Err(error) => return failed(error.to_string()),
    };
    let seen = AtomicU64::new(0);
    // Compressed files are measured by what is stored.
    let scale = |offset: u64| {
        let whole = u128::from(source.len().max(1) as u64);
        let stored = u128::from(offset) * u128::from(source.stored_bytes()) / whole;
        u64::try_from(stored).unwrap_or(0)
    };
    let report = |offset: u64| {
        let now = scale(offset);
        progress.add(now.saturating_sub(seen.swap(now, Ordering::Relaxed)));
    };
    let read = Snapshot::read(&source, &report);
    report(source.len() as u64);
    if let Err(error) = source.check_unchanged() {
        return failed(error.to_string());
    }
    match read {
        Ok(snapshot) => Read::Done(use_it(&snapshot, &path, source.stored_bytes())),
        Err(SnapshotError::NotSnapshot(_)) if input.found && is_named_json(&input.path) => {
            Read::Skipped
        }
        Err(error) => failed(error.to_string()),
    }
}

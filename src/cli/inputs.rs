//! Expands paths, reads snapshots in parallel, and combines their analyses.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, anyhow, bail};
use itertools::Itertools as _;
use same_file::is_same_file;

use super::exit::{Exit, print_stderr, report_unreadable};
use super::in_order::process_in_order;
use super::progress::Progress;
use crate::analysis::{AnalyzeReport, Options, SnapshotReport, Unreadable, is_requested, without_reason};
use crate::base::input::Source;
use crate::base::threads;
use crate::base::units::counted;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::study::{DeviceStudy, PositionSelector, Scope, Study};
use crate::whatif::fit::FitInput;

#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    /// The name in results: the path, or that given for standard input.
    pub(super) name: String,
    /// Found in a directory, not named by the user, so it may not be a snapshot.
    is_discovered: bool,
}

impl Input {
    /// A file that the user named.
    pub(super) fn named(path: &Path) -> Self {
        Self { path: path.to_owned(), name: path.display().to_string(), is_discovered: false }
    }
}

pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The files named by `paths`; those in directories, and those that match a pattern, are sorted by name.
pub(super) fn expand_paths(paths: &[PathBuf]) -> anyhow::Result<Vec<Input>> {
    let mut inputs = Vec::new();
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        bail!("-: standard input can be read only once");
    }
    for path in paths {
        if is_pattern(path) {
            for path in matching_paths(path)? {
                expand_path(&path, &mut inputs)?;
            }
        } else {
            expand_path(path, &mut inputs)?;
        }
    }
    Ok(inputs)
}

/// Drops the snapshots in a directory that another process requested, if a later one of the same process is there: it has
/// the same trace.
pub(super) fn keep_latest(inputs: &mut Vec<Input>) {
    let later = inputs.iter().filter(|input| !is_requested(&input.name));
    let later: BTreeSet<String> = later.filter_map(|input| Some(without_reason(&input.name)?.0)).collect();
    inputs.retain(|input| {
        let is_requested = input.is_discovered && is_requested(&input.name);
        !is_requested || without_reason(&input.name).is_none_or(|(rank, _)| !later.contains(&rank))
    });
}

fn expand_path(path: &Path, inputs: &mut Vec<Input>) -> anyhow::Result<()> {
    if !path.is_dir() {
        inputs.push(Input::named(path));
        return Ok(());
    }
    let found = find_files(path, is_named_like_a_snapshot);
    let found = found.with_context(|| format!("{}: cannot be listed", path.display()))?;
    if found.is_empty() {
        bail!("{}: holds no snapshot (no .pickle, .pkl or .json, plain, .gz or .zst)", path.display());
    }
    inputs.extend(found.iter().map(|path| Input { is_discovered: true, ..Input::named(path) }));
    Ok(())
}

/// Whether `path` is a pattern that no shell has expanded: it was quoted, or the shell expands none.
fn is_pattern(path: &Path) -> bool {
    !is_stdin(path) && path.symlink_metadata().is_err() && path.to_string_lossy().contains(['*', '?', '['])
}

/// The files and directories that match `pattern`, sorted by name.
fn matching_paths(pattern: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = pattern.display();
    let Some(text) = pattern.to_str() else { bail!("{name}: no such file") };
    let matches = glob::glob(text).map_err(|error| anyhow!("{name}: is no pattern: {}", error.msg))?;
    let paths: Vec<PathBuf> =
        matches.collect::<Result<_, _>>().map_err(|error| anyhow!("{}: cannot be listed", error.path().display()))?;
    if paths.is_empty() {
        bail!("{name}: no file matches this pattern");
    }
    Ok(paths)
}

/// Refuses an output file that is also an input. A JSON file found in a directory is removed from `inputs` instead: it
/// may be the output of an earlier run.
pub(super) fn refuse_output_over_inputs(inputs: &mut Vec<Input>, output: Option<&Path>) -> anyhow::Result<()> {
    let Some(output) = output else { return Ok(()) }; // standard output
    // Compares files, not names, because of symbolic and hard links.
    inputs.retain(|input| {
        !input.is_discovered || !is_named_json(&input.path) || !is_same_file(&input.path, output).unwrap_or(false)
    });
    match inputs.iter().find(|input| is_same_file(&input.path, output).unwrap_or(false)) {
        Some(input) => bail!("{}: is an input file; the output would overwrite it", input.path.display()),
        None => Ok(()),
    }
}

/// Compares files that exist, or else their absolute paths. A device such as `/dev/null` may be written twice.
pub(super) fn are_same_file(path: &Path, other: &Path) -> bool {
    match (path.exists(), other.exists()) {
        (true, true) => path.is_file() && is_same_file(path, other).unwrap_or(false),
        (false, false) => absolute(path) == absolute(other),
        _ => false,
    }
}

/// The canonical directory and the name of the file at `path`.
fn absolute(path: &Path) -> Option<(Option<PathBuf>, Option<OsString>)> {
    std::path::absolute(path).ok().map(|path| {
        let directory = path.parent().and_then(|parent| parent.canonicalize().ok());
        (directory, path.file_name().map(OsStr::to_owned))
    })
}

pub(super) fn refuse_output_over_input(input: &Path, output: Option<&Path>) -> anyhow::Result<()> {
    refuse_output_over_inputs(&mut vec![Input::named(input)], output)
}

/// `path` with slashes on every platform, for names in files that are read on another.
pub(super) fn with_slashes(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).join("/")
}

/// Everything in `directory` and below that is no directory itself, and what could not be listed. No link is followed.
pub(super) fn paths_below(directory: &Path) -> Vec<io::Result<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(directory).map_or_else(|error| vec![Err(error)], Iterator::collect);
        for entry in entries {
            match entry {
                Ok(entry) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => open.push(entry.path()),
                other => found.push(other.map(|entry| entry.path())),
            }
        }
    }
    found
}

/// The files below `directory` whose names are wanted, sorted by name.
pub(super) fn find_files(directory: &Path, is_wanted: fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut paths = paths_below(directory).into_iter().collect::<io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| is_wanted(path) && path.is_file());
    paths.sort();
    Ok(paths)
}

fn is_named_json(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".json"))
}

fn is_named_like_a_snapshot(path: &Path) -> bool {
    let uncompressed = path.with_extension("");
    let path = if has_extension(path, &["gz", "zst"]) { &uncompressed } else { path };
    has_extension(path, &["pickle", "pkl", "json"])
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    path.extension().is_some_and(|extension| known.iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

/// Reads all inputs in parallel and calls `process` with each snapshot, its path and stored size. Results and
/// unreadable files are in the order of the inputs; JSON files that are named like a rank come last.
pub(super) fn read_all<T: Send>(
    inputs: &[Input],
    process: impl Fn(&mut Snapshot, &str, u64) -> T + Sync,
) -> (Vec<T>, Vec<Unreadable>) {
    let mut outcomes = Vec::new();
    read_each(inputs, process, |outcome| {
        outcomes.push(outcome);
        ControlFlow::Continue(())
    });
    outcomes.into_iter().partition_result()
}

/// [`read_all`], but passes each result, or error, to `receive` as soon as it and all before it are known. JSON files
/// that only the names of all snapshots show to be ranks come last.
pub(super) fn read_each<T: Send>(
    inputs: &[Input],
    process: impl Fn(&mut Snapshot, &str, u64) -> T + Sync,
    mut receive: impl FnMut(Result<T, Unreadable>) -> ControlFlow<()>,
) {
    let progress = progress_of(inputs);
    let (mut seen, mut is_stopped) = (Seen::default(), false);
    process_in_order(
        inputs,
        |input| {
            let (mut snapshot, stored_bytes) = load(&input.path, &progress)?;
            Ok(process(&mut snapshot, &input.name, stored_bytes))
        },
        |input, read| {
            let flow = seen.add(input, read).map_or(ControlFlow::Continue(()), &mut receive);
            is_stopped = flow.is_break();
            flow
        },
    );
    drop(progress);
    if !is_stopped {
        let _ = seen.unreadable_ranks().into_iter().try_for_each(|error| receive(Err(error)));
    }
}

/// Reads the inputs one after the other and calls `process` with each snapshot and its path. Returns the unreadable files,
/// in the order of the inputs; JSON files that are named like a rank come last. The first error of `process` ends the work.
pub(super) fn read_in_turn(
    inputs: &[Input],
    mut process: impl FnMut(&Snapshot, &str) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Unreadable>> {
    let progress = progress_of(inputs);
    let (mut seen, mut unreadable) = (Seen::default(), Vec::new());
    for input in inputs {
        match seen.add(input, load(&input.path, &progress)) {
            Some(Ok((snapshot, _))) => process(&snapshot, &input.name)?,
            Some(Err(error)) => unreadable.push(error),
            None => {}
        }
    }
    drop(progress);
    unreadable.extend(seen.unreadable_ranks());
    Ok(unreadable)
}

fn progress_of(inputs: &[Input]) -> Progress {
    let total = inputs.iter().filter_map(|input| input.path.metadata().ok()).map(|file| file.len()).sum();
    Progress::new(total, inputs.len())
}

/// The files that were read, to recognize other ranks of their job among those that were skipped.
#[derive(Default)]
struct Seen<'i> {
    snapshots: Vec<&'i Path>,
    skipped: Vec<&'i Input>,
}

impl<'i> Seen<'i> {
    /// Returns what was read from `input`, unless it was skipped.
    fn add<T>(&mut self, input: &'i Input, read: anyhow::Result<T>) -> Option<Result<T, Unreadable>> {
        match &read {
            Ok(_) => self.snapshots.push(&input.path),
            Err(error) if input.is_discovered && is_named_json(&input.path) => {
                if let Some(SnapshotError::NotSnapshot(_)) = error.downcast_ref() {
                    self.skipped.push(input);
                    return None;
                }
            }
            Err(_) => {}
        }
        Some(read.map_err(|error| Unreadable { path: input.name.clone(), message: error.to_string() }))
    }

    /// The errors of the skipped files that are named like the ranks among the snapshots. Reports the number of the
    /// others.
    fn unreadable_ranks(self) -> Vec<Unreadable> {
        let names: BTreeSet<_> = self.snapshots.into_iter().map(rank_name).collect();
        let patterns: BTreeSet<String> = names.iter().map(|(_, name)| without_numbers(name)).collect();
        let (ranks, others): (Vec<_>, Vec<_>) = self.skipped.into_iter().partition(|input| {
            let name = rank_name(&input.path);
            // A file that is named like one of the snapshots belongs to it.
            patterns.contains(&without_numbers(&name.1)) && !names.contains(&name)
        });
        if !others.is_empty() {
            print_stderr(&format!("skipped {}: not a snapshot", counted(others.len() as u64, ".json file")));
        }
        let message = "is not a snapshot, although it is named like the other ranks";
        ranks.iter().map(|rank| Unreadable { path: rank.name.clone(), message: message.to_owned() }).collect()
    }
}

/// The first of `paths`, and the number of the others.
pub(super) fn describe_paths<'a>(mut paths: impl Iterator<Item = &'a str>) -> Option<String> {
    let first = paths.next()?;
    Some(match paths.count() {
        0 => first.to_owned(),
        n => format!("{first} and {}", counted(n as u64, "other snapshot")),
    })
}

/// The message that the snapshots at `paths`, if any, do not have `device`.
pub(super) fn missing_device<'a>(paths: impl Iterator<Item = &'a str>, device: u64) -> Option<String> {
    Some(format!("{}: no memory and no trace of GPU {device}", describe_paths(paths)?))
}

/// Prints the unreadable files and combines the rest; `None` if all files are unreadable. Fails if there is no file at all,
/// or if no snapshot has the position or the device of `options`.
pub(super) fn combine_snapshots(
    snapshots: Vec<SnapshotReport>,
    unreadable: Vec<Unreadable>,
    options: Options,
) -> anyhow::Result<Option<(AnalyzeReport, Exit)>> {
    let Some(exit) = report_unreadable(&unreadable, snapshots.len())? else { return Ok(None) };
    let report = AnalyzeReport::new(snapshots, unreadable, options.top);
    if let Some(position) = options.at.filter(|_| report.devices().all(|device| device.moment.is_none())) {
        bail!(missing_position(position));
    }
    if let Some(device) = options.scope.device {
        let snapshots = &report.snapshots;
        let without = snapshots.iter().filter(|snapshot| snapshot.devices.is_empty()).map(|snapshot| &*snapshot.path);
        if let Some(message) = missing_device(without, device) {
            if snapshots.iter().all(|snapshot| snapshot.devices.is_empty()) {
                bail!(message);
            }
            // The table of ranks does not show the warnings of snapshots that it leaves out.
            if report.ranks.is_some() {
                print_stderr(&message);
            }
        }
    }
    Ok(Some((report, exit)))
}

/// The message that no snapshot has `position`.
pub(super) fn missing_position(position: PositionSelector) -> String {
    format!("--at {position}: {}", position.describe_missing())
}

/// The only snapshot in the directory `path`, as `run` writes for one process; a file is returned as it is.
pub(super) fn single_snapshot(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    match expand_paths(&[path.to_owned()])?.as_slice() {
        [first, _, ..] => {
            bail!("{}: holds several snapshots; name one of them, such as {}", path.display(), first.path.display())
        }
        [only] => Ok(only.path.clone()),
        [] => Ok(path.to_owned()), // `expand_paths` refuses an empty directory
    }
}

pub(super) fn read_one(path: &Path) -> anyhow::Result<Snapshot> {
    if path.is_dir() {
        bail!("{}: is a directory; this command takes one snapshot", path.display());
    }
    // The error already has its cause, which a context would repeat.
    let read = load(path, &progress_of(&[Input::named(path)]));
    read.map(|(snapshot, _)| snapshot).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// The first device of `study` with a trace; without one, there is nothing to replay.
pub(super) fn first_device_with_trace<'s, 'a>(study: &'s Study<'a>, path: &str) -> anyhow::Result<DeviceStudy<'s, 'a>> {
    let of_device = study.scope().device.map_or_else(String::new, |device| format!(" of GPU {device}"));
    let traced = study.devices().find(|device| !device.device().is_empty());
    traced.ok_or_else(|| anyhow!("{path}: no trace{of_device} to replay; `oomscope analyze` shows the snapshot itself"))
}

/// Recordings of one program at several sizes.
#[derive(Default)]
pub(super) struct SizedRecordings {
    read: Vec<(u64, String, Snapshot)>,
}

impl SizedRecordings {
    pub(super) fn add(&mut self, size: u64, path: &Path) -> anyhow::Result<()> {
        self.read.push((size, path.display().to_string(), read_one(path)?));
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.read.len()
    }

    /// Passes the recordings to `predict`. All need a trace.
    pub(super) fn study<T>(&self, predict: impl FnOnce(&[FitInput<'_, '_>]) -> T) -> anyhow::Result<T> {
        let studies: Vec<Study<'_>> =
            self.read.iter().map(|(.., snapshot)| Study::new(snapshot, Scope::default())).collect();
        let inputs = self.read.iter().zip(&studies).map(|((size, path, _), study)| {
            first_device_with_trace(study, path)?;
            Ok(FitInput { size: *size, path, study })
        });
        Ok(predict(&inputs.collect::<anyhow::Result<Vec<_>>>()?))
    }
}

/// Reads a snapshot. Returns it with its stored size.
fn load(path: &Path, progress: &Progress) -> anyhow::Result<(Snapshot, u64)> {
    let source = Source::open_stored(path)?;
    let stored_bytes = source.stored_bytes();
    let seen = AtomicU64::new(0);
    let snapshot = Snapshot::read_compressed(&source, &|more| {
        progress.advance(&seen, seen.load(Ordering::Relaxed) + more);
    });
    if let Some(snapshot) = snapshot {
        source.check_unchanged()?;
        return Ok((snapshot, stored_bytes));
    }
    let source = source.decompressed()?;
    let len = u128::from(source.len().max(1) as u64);
    let read = Snapshot::read(&source, &|offset| {
        let stored = u128::from(offset) * u128::from(stored_bytes) / len;
        progress.advance(&seen, u64::try_from(stored).unwrap_or(u64::MAX));
    });
    progress.advance(&seen, stored_bytes);
    source.check_unchanged()?;
    threads::drop_aside(source);
    Ok((read?, stored_bytes))
}

fn rank_name(path: &Path) -> (PathBuf, String) {
    // A path such as `..` has no name, so no other file is named like it.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split_once('.').map_or(&*name, |(stem, _)| stem).to_owned();
    (path.parent().unwrap_or(Path::new("")).to_owned(), name)
}

fn without_numbers(name: &str) -> String {
    let pattern = name.chars().map(|c| if c.is_ascii_digit() { '#' } else { c });
    pattern.dedup_by(|before, after| (*before, *after) == ('#', '#')).collect()
}

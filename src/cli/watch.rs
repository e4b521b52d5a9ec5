//! `oomscope analyze --watch`: a line for each snapshot of a directory when it is complete, and all of them at the end.
//!
//! The directory is listed again and again: network file systems report no changes of other nodes.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::exit::print_stderr;
use super::inputs::{self, Input};
use super::signals::handled_by;
use crate::analysis::{SnapshotReport, Unreadable};
use crate::snapshot::Snapshot;

/// Time between two listings.
const INTERVAL: Duration = Duration::from_millis(250);
/// A file that cannot be read, or does not end like a snapshot, counts as damaged when it has not changed for this long.
const SETTLED: Duration = Duration::from_secs(5);

/// When to stop waiting for snapshots.
#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting for snapshots")]
pub(super) struct WatchArgs {
    /// Wait for snapshots in the directories: a line for each when it is complete, at the end all, the worst first
    ///
    /// Snapshots that are there already count. Ends with --until, --idle, Ctrl-C or SIGTERM, and then writes the result.
    #[arg(long)]
    pub(super) watch: bool,

    /// End when N snapshots have been seen
    #[arg(long, value_name = "N", requires = "watch")]
    until: Option<usize>,

    /// End when no snapshot has come for this long: 30s, 10m or 2h
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = parse_time)]
    idle: Option<Duration>,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('s') => (number, 1),
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) => (number, 3600),
        None => (text, 1),
    };
    let number: u64 = number.parse().map_err(|_| "give a time such as 30s, 10m or 2h".to_owned())?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

/// The results, by path: a file that is written again has a new one.
pub(super) type Landed = BTreeMap<PathBuf, Result<SnapshotReport, Unreadable>>;

/// Analyzes the snapshots that appear in `directories` and passes each result to `receive`; ends early when that breaks.
pub(super) fn watch(
    args: &WatchArgs,
    directories: &[PathBuf],
    analyze: impl Fn(&Snapshot, &str, u64) -> SnapshotReport + Sync,
    mut receive: impl FnMut(Result<&SnapshotReport, &Unreadable>) -> ControlFlow<()>,
) -> anyhow::Result<Landed> {
    if let Some(file) = directories.iter().find(|path| !path.is_dir() && path.exists()) {
        bail!("{}: is not a directory, as --watch needs", file.display());
    }
    for missing in directories.iter().filter(|path| !path.exists()) {
        print_stderr(&format!("{}: does not exist yet; waiting for it", missing.display()));
    }
    let is_ended = end_signal()?;
    let mut landed = Landed::new();
    let mut files = BTreeMap::new();
    let mut last_landed = Instant::now();
    let mut analyze_batch = |is_last: bool, files: &mut BTreeMap<PathBuf, FileState>| {
        let mut batch = Vec::new();
        for (path, file) in files.iter_mut().filter(|(path, file)| !file.is_done && (is_last || file.is_ready(path))) {
            file.is_done = true;
            batch.push(Input::discovered(path));
        }
        let mut flow = ControlFlow::Continue(());
        inputs::read_each(&batch, &analyze, |outcome| {
            let path = PathBuf::from(outcome.as_ref().map_or_else(|file| &file.path, |report| &report.path));
            if let Some(file) = files.get_mut(&path).filter(|file| outcome.is_err() && !is_last && !file.is_settled()) {
                (file.has_failed, file.is_done) = (true, false); // it may be incomplete
                return ControlFlow::Continue(());
            }
            last_landed = Instant::now();
            flow = receive(outcome.as_ref());
            landed.insert(path, outcome);
            flow
        });
        (flow, landed.len(), last_landed)
    };
    handled_by(|| {
        loop {
            update(directories, &mut files);
            let (flow, count, last) = analyze_batch(false, &mut files);
            let is_idle = args.idle.is_some_and(|idle| last.elapsed() >= idle);
            if flow.is_break() || args.until.is_some_and(|until| count >= until) {
                return;
            }
            if is_idle || is_ended.load(Ordering::SeqCst) {
                // Also the files that may be incomplete, so that none goes unmentioned.
                update(directories, &mut files);
                let _ = analyze_batch(true, &mut files);
                return;
            }
            wait(&is_ended);
        }
    });
    Ok(landed)
}

/// Becomes true with the first signal to end; a second one ends the program at once.
fn end_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let is_ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&is_ended))
            .and_then(|_| flag::register(signal, Arc::clone(&is_ended)))
            .context("signals cannot be handled")?;
    }
    Ok(is_ended)
}

fn wait(is_ended: &AtomicBool) {
    let end = Instant::now() + INTERVAL;
    while Instant::now() < end && !is_ended.load(Ordering::SeqCst) {
        std::thread::sleep(INTERVAL / 10);
    }
}

/// Shows that a file was written again: length, time of the last change, and [`identity`].
type Stamp = (u64, Option<SystemTime>, [u64; 3]);

/// The file itself, and when its metadata changed: a program may set the time of the last change.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> [u64; 3] {
    use std::os::unix::fs::MetadataExt as _;
    [metadata.ino(), metadata.ctime().cast_unsigned(), metadata.ctime_nsec().cast_unsigned()]
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> [u64; 3] {
    [0; 3]
}

/// A file that may still be written.
#[derive(Debug)]
struct FileState {
    stamp: Stamp,
    /// When it was first seen with this stamp.
    since: Instant,
    /// It was seen with this stamp before.
    is_stable: bool,
    /// It could not be read with this stamp.
    has_failed: bool,
    /// It was read with this stamp.
    is_done: bool,
}

impl FileState {
    fn is_settled(&self) -> bool {
        self.since.elapsed() >= SETTLED
    }

    fn is_ready(&self, path: &Path) -> bool {
        let is_complete = || !self.has_failed && ends_like_a_snapshot(path).unwrap_or(false);
        !self.is_done && self.is_stable && self.stamp.0 > 0 && (self.is_settled() || is_complete())
    }
}

/// Lists `directories` and notes which files have changed.
fn update(directories: &[PathBuf], files: &mut BTreeMap<PathBuf, FileState>) {
    // A directory that does not exist yet, or cannot be listed now, may appear later.
    let inputs = directories.iter().filter_map(|directory| inputs::list_snapshots(directory).ok()).flatten();
    for input in inputs {
        let Ok(metadata) = input.path.metadata() else { continue }; // it is gone
        let stamp = (metadata.len(), metadata.modified().ok(), identity(&metadata));
        match files.get_mut(&input.path) {
            Some(file) if file.stamp == stamp => file.is_stable = true,
            _ => {
                let is_new =
                    FileState { stamp, since: Instant::now(), is_stable: false, has_failed: false, is_done: false };
                files.insert(input.path, is_new);
            }
        }
    }
}

/// Whether the last byte of the file at `path` is that of a whole snapshot: the opcode STOP of a pickle, the bracket of
/// JSON. The end of compressed data shows nothing.
fn ends_like_a_snapshot(path: &Path) -> io::Result<bool> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let ends: &[u8] = match name.rsplit('.').next() {
        Some("pickle" | "pkl") => b".",
        Some("json") => b"}]",
        _ => return Ok(true),
    };
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(len.saturating_sub(16)))?;
    file.read_to_end(&mut end)?;
    Ok(end.trim_ascii_end().last().is_some_and(|last| ends.contains(last)))
}

/// Writes `line` at once.
pub(super) fn write_now(mut out: impl io::Write, line: &str) -> ControlFlow<()> {
    let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

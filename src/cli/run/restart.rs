//! Chooses the directory of a run whose directory has snapshots of an earlier one: a job that a scheduler restarts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::private_directory;
use super::recorded_process::{CONTROL_DIR, RecordedProcess, remove_parts, snapshots_in};
use crate::cli::directory_lock::{DirectoryLock, LockAttempt};
use crate::cli::exit::print_stderr;

/// Maximum number of restarts.
const MAX_RESTARTS: u32 = 100_000;

/// The directory of a run.
pub(super) struct ChosenDirectory {
    pub(super) path: PathBuf,
    /// It was created for this run.
    pub(super) is_created: bool,
    /// Shows other runs that this one uses the directory that was named.
    pub(super) lock: Option<DirectoryLock>,
}

/// Chooses `named`, or its subdirectory `run-2`, `run-3` and so on if an earlier run left snapshots there. Tasks of one
/// job that run at the same time share a directory if `is_shared`.
pub(super) fn choose_directory(named: &Path, is_shared: bool) -> anyhow::Result<ChosenDirectory> {
    let is_created = private_directory::create_or_check(named)?;
    let locked =
        DirectoryLock::try_exclusive(named).with_context(|| format!("{}: cannot be locked", named.display()))?;
    if let LockAttempt::Locked(lock) = locked {
        remove_leftovers(named)?;
        let (path, is_created) =
            if snapshots_in(named).is_empty() { (named.to_owned(), is_created) } else { (create_next(named)?, true) };
        // Others wait for the lock, and look for the recorder to find the directory.
        private_directory::create_control(&path.join(CONTROL_DIR))?;
        lock.share()?;
        return Ok(ChosenDirectory { path, is_created, lock: Some(lock) });
    }
    if !is_shared && matches!(locked, LockAttempt::Taken) {
        return Ok(ChosenDirectory { path: create_next(named)?, is_created: true, lock: None });
    }
    let lock = DirectoryLock::shared(named)?;
    let runs = fs::read_dir(named)?.flatten().map(|entry| entry.path());
    let mut running: Vec<(u32, PathBuf)> =
        runs.filter_map(|path| Some((restart_number(&path)?, path))).filter(|(_, path)| is_recording(path)).collect();
    running.sort();
    let (path, is_created) = match running.pop() {
        Some((_, path)) => (path, false),
        None if is_recording(named) || snapshots_in(named).is_empty() => (named.to_owned(), is_created),
        None => (create_next(named)?, true),
    };
    Ok(ChosenDirectory { path, is_created, lock })
}

fn is_recording(directory: &Path) -> bool {
    directory.join(CONTROL_DIR).exists()
}

/// The number of `run-2`.
fn restart_number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("run-")?.parse().ok()
}

/// Removes the recorders of runs that were killed. Processes that they left in the background keep theirs.
fn remove_leftovers(named: &Path) -> io::Result<()> {
    let runs = fs::read_dir(named)?.flatten().map(|entry| entry.path()).filter(|path| restart_number(path).is_some());
    for directory in runs.chain(Some(named.to_owned())) {
        let control = directory.join(CONTROL_DIR);
        let is_used = || RecordedProcess::find_all(&directory).iter().any(RecordedProcess::may_be_running);
        // A link is not followed, but refused when the recorder is written.
        if fs::symlink_metadata(&control).is_ok_and(|metadata| metadata.is_dir()) && !is_used() {
            fs::remove_dir_all(control)?;
            remove_parts(&directory);
        }
    }
    Ok(())
}

fn create_next(named: &Path) -> anyhow::Result<PathBuf> {
    for number in 2..MAX_RESTARTS {
        let path = named.join(format!("run-{number}"));
        match private_directory::create(&path) {
            Ok(()) => {
                let (named, path_shown) = (named.display(), path.display());
                print_stderr(&format!("{named} has snapshots of another run; those of this one go to {path_shown}"));
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("{}: cannot be created", path.display())),
        }
    }
    bail!("{}: there are too many directories run-N; remove some", named.display())
}

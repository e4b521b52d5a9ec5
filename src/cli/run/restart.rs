//! Chooses the directory of a run whose directory has snapshots of an earlier one: a job that a scheduler restarts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use super::private_directory;
use super::recorded_process::{CONTROL_DIR, RecordedProcess, paths_in, remove_parts, snapshots_in};
use crate::cli::directory_lock::{DirectoryLock, FlockOperation};
use crate::cli::exit::print_stderr;

/// Maximum number of restarts.
const MAX_RESTARTS: u32 = 100_000;

/// The directory of a run.
#[derive(Debug)]
pub(in crate::cli) struct ChosenDirectory {
    pub(in crate::cli) path: PathBuf,
    /// It was created for this run.
    pub(super) is_created: bool,
    /// Show other runs that this one uses the directory that was named, and its own if that is another one.
    pub(super) locks: Vec<DirectoryLock>,
}

/// Chooses `named`, or its subdirectory `run-2`, `run-3` and so on if an earlier run left snapshots there. Tasks of one
/// job that run at the same time share a directory if `is_shared`.
pub(super) fn choose_directory(named: &Path, is_shared: bool) -> anyhow::Result<ChosenDirectory> {
    let is_created = private_directory::create_or_check(named)?;
    let locked = match DirectoryLock::take(named, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_shared => return create_next(named),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        locked => locked.with_context(|| format!("{}: cannot be locked", named.display()))?,
    };
    if let Some(lock) = locked {
        remove_leftovers(named)?;
        let mut chosen = if snapshots_in(named).is_empty() {
            ChosenDirectory { path: named.to_owned(), is_created, locks: Vec::new() }
        } else {
            create_next(named)?
        };
        // Others wait for the lock, and look for the recorder to find the directory.
        private_directory::create_control(&chosen.path.join(CONTROL_DIR))?;
        lock.change(FlockOperation::LockShared)?;
        chosen.locks.push(lock);
        return Ok(chosen);
    }
    let lock = share(named)?;
    let running = paths_in(named).filter_map(|path| Some((restart_number(&path)?, path)));
    let running = running.filter(|(_, path)| is_recording(path)).max();
    let mut chosen = match running {
        Some((_, path)) => ChosenDirectory { locks: share(&path)?.into_iter().collect(), path, is_created: false },
        None if is_recording(named) || snapshots_in(named).is_empty() => {
            ChosenDirectory { path: named.to_owned(), is_created, locks: Vec::new() }
        }
        None => create_next(named)?,
    };
    chosen.locks.extend(lock);
    Ok(chosen)
}

fn share(directory: &Path) -> anyhow::Result<Option<DirectoryLock>> {
    let lock = DirectoryLock::take(directory, FlockOperation::LockShared);
    lock.with_context(|| format!("{}: cannot be locked", directory.display()))
}

fn is_recording(directory: &Path) -> bool {
    directory.join(CONTROL_DIR).exists()
}

/// The number of `run-2`.
fn restart_number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("run-")?.parse().ok()
}

/// Removes the recorders of runs that were killed. Runs that go on have locks, and processes that runs left in the
/// background keep theirs.
fn remove_leftovers(named: &Path) -> anyhow::Result<()> {
    let runs = paths_in(named).filter(|path| restart_number(path).is_some());
    for directory in runs.chain(Some(named.to_owned())) {
        let control = directory.join(CONTROL_DIR);
        // A link is not followed, but refused when the recorder is written.
        if !fs::symlink_metadata(&control).is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        // The lock on `named` is the caller's.
        let lock =
            (directory != named).then(|| DirectoryLock::take(&directory, FlockOperation::NonBlockingLockExclusive));
        let is_locked = matches!(&lock, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock);
        if is_locked || RecordedProcess::find_all(&directory).iter().any(RecordedProcess::may_be_running) {
            continue;
        }
        if let Err(error) = fs::remove_dir_all(&control)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("{}: cannot be removed", control.display()));
        }
        remove_parts(&directory);
    }
    Ok(())
}

fn create_next(named: &Path) -> anyhow::Result<ChosenDirectory> {
    let paths = (2..MAX_RESTARTS).map(|number| named.join(format!("run-{number}")));
    let (named, created) = (named.display(), private_directory::create_first(paths, "")?);
    let path = created.ok_or_else(|| anyhow!("{named}: there are too many directories run-N; remove some"))?;
    print_stderr(&format!("{named} has snapshots of another run; those of this one go to {}", path.display()));
    Ok(ChosenDirectory { locks: share(&path)?.into_iter().collect(), path, is_created: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_keeps_its_recorder_before_its_first_process() {
        let named = tempfile::tempdir().unwrap();
        fs::write(named.path().join("rank0-pid7-oom1.pickle.gz"), "").unwrap();
        let first = choose_directory(named.path(), false).unwrap();
        let second = choose_directory(named.path(), false).unwrap();
        private_directory::create_control(&second.path.join(CONTROL_DIR)).unwrap();
        drop(first);
        let third = choose_directory(named.path(), false).unwrap();
        assert_eq!([&second.path, &third.path], [&named.path().join("run-3"), &named.path().join("run-4")]);
        assert_eq!([named.path().join("run-2"), second.path].map(|path| is_recording(&path)), [false, true]);
    }
}

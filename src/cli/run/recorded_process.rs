//! The snapshots and the status that recorded processes leave in the directory of a run.

use itertools::Itertools as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::input::read_text_file;
use crate::cli::atomic_file::AtomicFile;
use crate::cli::signals::process_exists;

/// The subdirectory with the recorder and the status of each process.
pub(super) const CONTROL_DIR: &str = ".recorder";

/// The snapshots that a recorder left in `directory`, by name.
pub(in crate::cli) fn snapshots_in(directory: &Path) -> Vec<PathBuf> {
    paths_in(directory).filter(|path| path.to_string_lossy().ends_with(".pickle.gz")).sorted().collect()
}

/// Removes the parts of snapshots whose processes were killed while they wrote them.
pub(super) fn remove_parts(directory: &Path) {
    for path in paths_in(directory).filter(|path| path.extension().is_some_and(|ending| ending == "part")) {
        let _ = fs::remove_file(path);
    }
}

pub(super) fn paths_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

pub(super) fn is_named(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct RecordedProcess {
    /// `HOST-PID`
    pub(super) name: String,
    /// The last dump that it finished; empty at first, `writing` during a dump, `gone` at the end.
    answer: String,
}

impl RecordedProcess {
    /// All processes recorded in `directory`.
    pub(in crate::cli) fn find_all(directory: &Path) -> Vec<Self> {
        let control = directory.join(CONTROL_DIR);
        // `.part` files are not complete yet.
        let complete = paths_in(&control).filter(|path| path.extension().is_none_or(|ending| ending != "part"));
        let names = complete.filter_map(|path| Some(path.file_name()?.to_str()?.strip_prefix("recorded-")?.to_owned()));
        let processes = names.sorted().map(|name| {
            // A process that has not dumped yet has no such file.
            let answer = read_text_file(&control.join(format!("done-{name}"))).unwrap_or_default();
            Self { name, answer }
        });
        processes.collect()
    }

    /// Requests a snapshot from all processes of `directory`, the same way as the processes do among themselves.
    pub(in crate::cli) fn request_snapshots(directory: &Path) -> io::Result<()> {
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let request = format!("by hand {} {now}", std::process::id());
        let control = directory.join(CONTROL_DIR);
        if control.is_symlink() {
            return Err(io::Error::other(".recorder is a link"));
        }
        AtomicFile::replace(&control.join("dump"))?.write_with(|out| out.write_all(request.as_bytes()))
    }

    /// True if the process has not finished a dump since `before`.
    pub(in crate::cli) fn is_waiting(&self, before: &Self) -> bool {
        self.name == before.name && (self.answer == before.answer || self.answer == "writing")
    }

    /// Whether the process has ended in Python's own way.
    pub(super) fn has_ended(&self) -> bool {
        self.answer == "gone"
    }

    /// False if the process has ended. A process on another host counts as running.
    pub(in crate::cli) fn may_be_running(&self) -> bool {
        !self.has_ended() && process_exists(&self.name)
    }
}

//! The output directory of a run: snapshots, and the recorder in `.recorder`, where processes also write their status.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::Serialize;

use super::{exit_code, private_directory};
use crate::base::input::read_text_file;
use crate::cli::atomic_file::AtomicFile;

/// Python imports the first one at the start of every process that has the control directory on its path; the recorder
/// imports the others.
const RECORDER: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("../../../python/oomscope/_recorder.py")),
    ("_oomscope_fills.py", include_str!("../../../python/oomscope/_fills.py")),
    ("_oomscope_names.py", include_str!("../../../python/oomscope/_names.py")),
    ("_oomscope_objects.py", include_str!("../../../python/oomscope/_objects.py")),
    ("_oomscope_tensors.py", include_str!("../../../python/oomscope/_tensors.py")),
];
const CONTROL_DIR: &str = ".recorder";
/// Number of directory names that a run without `-o` tries.
const MAX_RUNS: u32 = 100_000;

/// The recorder's configuration; its `DEFAULTS` in Python have the same keys.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct RecorderOptions {
    pub(in crate::cli) max_entries: u64,
    pub(in crate::cli) stacks: StackKind,
    pub(in crate::cli) at: SnapshotWhen,
    pub(in crate::cli) keep: u64,
    /// Seconds.
    pub(in crate::cli) wait: f64,
    /// Whether to find the variables that keep memory alive.
    pub(in crate::cli) names: bool,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct RunKind<'p> {
    /// Without `-o`, directories are named `NAME-1` and so on.
    pub(in crate::cli) name: &'static str,
    /// Files for the control directory: relative paths and contents.
    pub(in crate::cli) files: &'p [(&'p str, &'p str)],
    /// Environment variables for the command.
    pub(in crate::cli) environment: &'p [(&'static str, String)],
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum StackKind {
    Python,
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum SnapshotWhen {
    Oom,
    Exit,
}

#[derive(Debug)]
pub(in crate::cli) struct RunDirectory {
    /// The path for messages, as given.
    name: PathBuf,
    /// Absolute path.
    path: PathBuf,
    /// Created by this run, so it is removed if it stays empty.
    is_created: bool,
    earlier_snapshots: Vec<PathBuf>,
    environment: Vec<(&'static str, String)>,
}

/// The progress of a run's processes.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "markers of the processes, each independent of the others")]
pub(in crate::cli) struct RunStatus {
    pub(super) python: bool,
    /// A Python too old for the recorder was started.
    pub(super) old_python: bool,
    pub(super) torch: bool,
    /// A process imported a torch built without CUDA.
    pub(super) torch_without_cuda: bool,
    /// Number of recorded processes.
    pub(super) recorded: usize,
    /// Number of those that did not end in Python's own way.
    pub(super) unfinished: usize,
    /// Number of those in which a request failed.
    pub(super) failed: usize,
    /// There was no GPU.
    pub(super) is_dry_run: bool,
}

impl RunDirectory {
    pub(in crate::cli) fn prepare(
        output: Option<&Path>,
        options: &RecorderOptions,
        kind: RunKind<'_>,
    ) -> anyhow::Result<Self> {
        let (path, is_created) = match output {
            Some(path) => (path.to_owned(), private_directory::create_or_check(path)?),
            None => (create_numbered(kind.name)?, true),
        };
        let earlier_snapshots = snapshots_in(&path);
        let control = path.join(CONTROL_DIR);
        // If there is a control directory, another command is recording: perhaps a task of the same job.
        if !earlier_snapshots.is_empty() && !control.exists() {
            bail!(
                "{}: already has snapshots, which would mix with those of this run; name another directory",
                path.display()
            );
        }
        let environment = kind.environment.to_vec();
        let directory =
            Self { path: std::path::absolute(&path)?, name: path, is_created, earlier_snapshots, environment };
        private_directory::create_control(&directory.control_dir())?;
        directory
            .write_recorder(options, kind.files)
            .with_context(|| format!("{}: the recorder cannot be written there", directory.name.display()))?;
        Ok(directory)
    }

    fn write_recorder(&self, options: &RecorderOptions, others: &[(&str, &str)]) -> io::Result<()> {
        let control = self.control_dir();
        let config = serde_json::to_string(options)?;
        for (name, text) in RECORDER.iter().chain(others).chain([&("config", config.as_str())]) {
            let path = control.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&control))?;
            AtomicFile::replace(&path)?.write_with(|out| out.write_all(text.as_bytes()))?;
        }
        Ok(())
    }

    /// The path for messages, as given.
    pub(in crate::cli) fn name(&self) -> &Path {
        &self.name
    }

    /// The absolute path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn environment(&self) -> &[(&'static str, String)] {
        &self.environment
    }

    /// The directory for PYTHONPATH.
    pub(super) fn control_dir(&self) -> PathBuf {
        self.path.join(CONTROL_DIR)
    }

    /// Removes the recorder, and the directory if it is empty. Returns what the processes did, and the snapshots of
    /// this run.
    pub(in crate::cli) fn finish(self) -> (RunStatus, Vec<PathBuf>) {
        let control = self.control_dir();
        let processes = RecordedProcess::find_all(&self.path);
        let status = RunStatus {
            python: control.join("saw-python").exists(),
            old_python: control.join("saw-old-python").exists(),
            torch: control.join("saw-torch").exists(),
            torch_without_cuda: control.join("saw-torch-without-cuda").exists(),
            recorded: processes.len(),
            unfinished: processes.iter().filter(|process| process.answer != "gone").count(),
            failed: processes
                .iter()
                .filter(|process| !control.join(format!("served-{}", process.name)).exists())
                .count(),
            is_dry_run: control.join("dry-run.json").exists(),
        };
        exit_code::complete_snapshots(&control);
        let mut snapshots = snapshots_in(&self.name);
        snapshots.retain(|path| !self.earlier_snapshots.contains(path));
        // Processes in the background still need the recorder. Errors are ignored: leftovers do no harm.
        if !processes.iter().any(RecordedProcess::may_be_running) {
            let _ = fs::remove_dir_all(&control);
            // A process that was killed while it wrote its snapshot.
            for path in paths_in(&self.path).filter(|path| path.extension().is_some_and(|ending| ending == "part")) {
                let _ = fs::remove_file(path);
            }
        }
        if self.is_created {
            let _ = fs::remove_dir(&self.path);
        }
        (status, snapshots)
    }
}

/// Creates the first free `NAME-N`. Tasks of a job may do this at the same time.
pub(in crate::cli) fn create_numbered(name: &str) -> anyhow::Result<PathBuf> {
    for number in 1..MAX_RUNS {
        let path = PathBuf::from(format!("{name}-{number}"));
        match private_directory::create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{}: cannot be created; name a directory with -o DIR", path.display()));
            }
        }
    }
    bail!("there are too many directories {name}-N here: remove some")
}

/// The snapshots that a recorder left in `directory`, by name.
pub(in crate::cli) fn snapshots_in(directory: &Path) -> Vec<PathBuf> {
    let is_snapshot = |path: &PathBuf| path.to_string_lossy().ends_with(".pickle.gz");
    let mut found: Vec<PathBuf> = paths_in(directory).filter(is_snapshot).collect();
    found.sort();
    found
}

fn paths_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct RecordedProcess {
    /// `HOST-PID`
    name: String,
    /// The last dump that it finished; empty at first, `writing` during a dump, `gone` at the end.
    answer: String,
}

impl RecordedProcess {
    /// All processes recorded in `directory`.
    pub(in crate::cli) fn find_all(directory: &Path) -> Vec<Self> {
        let control = directory.join(CONTROL_DIR);
        let entries = fs::read_dir(&control).into_iter().flatten().flatten();
        let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let mut answers = BTreeMap::new();
        for name in names.iter().filter_map(|name| name.strip_prefix("recorded-")) {
            // `.part` files are not complete yet.
            if Path::new(name).extension().is_none_or(|ending| ending != "part") {
                let answer = read_text_file(&control.join(format!("done-{name}")));
                // A process that has not dumped yet has no such file.
                answers.insert(name.to_owned(), answer.unwrap_or_default());
            }
        }
        answers.into_iter().map(|(name, answer)| Self { name, answer }).collect()
    }

    /// Requests a snapshot from all processes of `directory`, the same way as the processes do among themselves.
    pub(in crate::cli) fn request_snapshots(directory: &Path) -> io::Result<()> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos());
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

    /// False if the process has ended. A process on another host counts as running.
    pub(in crate::cli) fn may_be_running(&self) -> bool {
        self.answer != "gone" && process_exists(&self.name)
    }
}

#[cfg(unix)]
fn process_exists(name: &str) -> bool {
    use rustix::process::{Pid, test_kill_process};
    // A name that is not HOST-PID shows nothing, so its process may be running.
    let Some((host, pid)) = name.rsplit_once('-') else { return true };
    let here = rustix::system::uname();
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    match pid {
        Some(pid) if here.nodename().to_bytes() == host.as_bytes() => {
            test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
        }
        _ => true,
    }
}

#[cfg(not(unix))]
fn process_exists(_name: &str) -> bool {
    true
}

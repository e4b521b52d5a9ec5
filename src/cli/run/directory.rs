//! The output directory of a run: snapshots, and the recorder in `.recorder`, where processes also write their status.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{ArgAction, Args};
use serde::Serialize;
use serde_json::json;

use super::recorded_process::{CONTROL_DIR, RecordedProcess, is_named, paths_in, remove_parts, snapshots_in};
use super::restart::{ChosenDirectory, choose_directory};
use super::{exit_code, private_directory};
use crate::cli::atomic_file::AtomicFile;
use crate::cli::directory_lock::FlockOperation;

/// Python imports it at the start of every process that has the control directory on its path.
const START: [(&str, &str); 2] =
    [("sitecustomize.py", include_str!("../../../python/oomscope/_start.py")), ("_oomscope/__init__.py", "")];
/// The recorder, and what it imports.
const MODULES: &[(&str, &str)] = files! {
    "_oomscope/_", "python/oomscope/_", ".py",
    "imports" "names" "objects" "recorder" "sleep" "source" "tensors"
};
/// Number of directory names that a run without `-o` tries.
const MAX_RUNS: u32 = 100_000;

/// The recorder's configuration; its `DEFAULTS` in Python have the same keys.
#[derive(Debug, Args, Serialize)]
pub(in crate::cli) struct RecorderOptions {
    /// Number of trace entries to keep for each device; older ones are lost
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub(in crate::cli) max_entries: u64,

    /// Record Python stacks, or C++ stacks as well
    #[arg(long, default_value = "python", value_parser = ["python", "all"])]
    pub(in crate::cli) stacks: String,

    /// When to write snapshots: at a failed request, or also at the end of processes without one
    #[arg(long, value_name = "WHEN", default_value = "oom", value_parser = ["oom", "exit"])]
    pub(in crate::cli) at: String,

    /// Maximum number of failures to keep for each process
    ///
    /// The first ones are kept, then at most one in 30 seconds.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::cli) keep: u64,

    /// Do not look for the variables that keep GPU memory alive
    #[arg(long = "no-names", action = ArgAction::SetFalse)]
    pub(in crate::cli) names: bool,
}

#[derive(Debug)]
pub(in crate::cli) struct RunDirectory {
    /// With the path for messages, as given. It is removed if it was created for this run and stays empty.
    pub(in crate::cli) chosen: ChosenDirectory,
    /// Absolute path.
    pub(super) path: PathBuf,
    earlier_snapshots: Vec<PathBuf>,
    /// Variables of the command.
    pub(in crate::cli) environment: Vec<(&'static str, String)>,
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
    /// Number of Python processes that could not be recorded, because of their options, and failed.
    isolated: usize,
    /// Number of those in which a request failed.
    pub(super) failed: usize,
    /// There was no GPU.
    pub(super) is_dry_run: bool,
    /// A serving engine was started in a dry run.
    pub(in crate::cli) has_engine: bool,
}

impl RunStatus {
    /// Number of processes whose memory is not known.
    pub(in crate::cli) fn lost(&self) -> usize {
        self.unfinished + self.isolated
    }
}

impl RunDirectory {
    /// Makes the directory `output`, or else the first free `NAME-N`, with a recorder in it. `files` are others for the
    /// control directory: relative paths and contents. Runs that use one directory at the same time are tasks of one job
    /// if `is_shared`.
    pub(in crate::cli) fn prepare(
        output: Option<&Path>,
        options: &RecorderOptions,
        name: &str,
        files: &[(&str, &str)],
        is_shared: bool,
    ) -> anyhow::Result<Self> {
        let chosen = match output {
            Some(path) => choose_directory(path, is_shared)?,
            None => ChosenDirectory { path: create_numbered(name)?, is_created: true, locks: Vec::new() },
        };
        let directory = Self {
            path: std::path::absolute(&chosen.path)?,
            // Another task of the same job may be recording.
            earlier_snapshots: snapshots_in(&chosen.path),
            chosen,
            environment: Vec::new(),
        };
        let written = private_directory::create_control(&directory.control_dir()).and_then(|()| {
            directory
                .write_recorder(options, files)
                .with_context(|| format!("{}: the recorder cannot be written there", directory.chosen.path.display()))
        });
        if written.is_err() && directory.chosen.is_created {
            let _ = fs::remove_dir_all(&directory.path);
        }
        written.map(|()| directory)
    }

    fn write_recorder(&self, options: &RecorderOptions, others: &[(&str, &str)]) -> io::Result<()> {
        let control = self.control_dir();
        let config = json!(options).to_string();
        for (name, text) in [("config", &*config)].iter().chain(&START).chain(MODULES).chain(others) {
            let path = control.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&control))?;
            AtomicFile::replace(&path)?.write_with(|out| out.write_all(text.as_bytes()))?;
        }
        Ok(())
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
        let unserved = processes.iter().filter(|process| !control.join(format!("served-{}", process.name)).exists());
        let mut status = RunStatus {
            python: control.join("saw-python").exists(),
            old_python: control.join("saw-old-python").exists(),
            torch: control.join("saw-torch").exists(),
            torch_without_cuda: control.join("saw-torch-without-cuda").exists(),
            recorded: processes.len(),
            unfinished: 0,
            failed: unserved.count(),
            isolated: paths_in(&control).filter(|path| is_named(path, "isolated-")).count(),
            is_dry_run: control.join("dry-run.json").exists(),
            has_engine: control.join("serving").exists(),
        };
        exit_code::complete_snapshots(&control);
        let mut snapshots = snapshots_in(&self.chosen.path);
        snapshots.retain(|path| !self.earlier_snapshots.contains(path));
        // A lock that others share cannot become one of this process alone.
        let is_shared =
            self.chosen.locks.iter().any(|lock| lock.change(FlockOperation::NonBlockingLockExclusive).is_err());
        // Other tasks of the job, and processes in the background, still need the recorder. Errors are ignored:
        // leftovers do no harm.
        if !is_shared && !processes.iter().any(RecordedProcess::may_be_running) {
            let _ = fs::remove_dir_all(&control);
            remove_parts(&self.path);
        }
        if self.chosen.is_created {
            let _ = fs::remove_dir(&self.path);
        }
        let unfinished = processes.iter().filter(|process| !process.has_ended());
        // Other tasks may go on.
        status.unfinished = unfinished.filter(|process| !is_shared || !process.may_be_running()).count();
        (status, snapshots)
    }
}

/// Creates the first free `NAME-N`.
pub(in crate::cli) fn create_numbered(name: &str) -> anyhow::Result<PathBuf> {
    let paths = (1..MAX_RUNS).map(|number| PathBuf::from(format!("{name}-{number}")));
    let created = private_directory::create_first(paths, "; name a directory with -o DIR")?;
    created.ok_or_else(|| anyhow!("there are too many directories {name}-N here: remove some"))
}

/// Parses `1000000`, `200K` or `1M`.
pub(in crate::cli) fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.get(..text.len() - 1), 1_000),
        Some(b'm' | b'M') => (text.get(..text.len() - 1), 1_000_000),
        _ => (Some(text), 1),
    };
    let count = digits.and_then(|digits| digits.parse::<u64>().ok());
    match count.and_then(|count| count.checked_mul(factor)) {
        Some(0) | None => Err("give a number of entries, such as 200K or 1M".to_owned()),
        Some(count) => Ok(count),
    }
}

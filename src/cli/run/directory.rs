//! The directory of a run: the recorder in `.recorder`, which the processes write their marks into, and snapshots.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::whole_file::WholeFile;

/// What Python imports at its start, in every process that has the control directory on its path.
const RECORDER: &str = include_str!("../../../python/oomscope/_recorder.py");
/// The control directory, in the directory of a run.
const CONTROL: &str = ".recorder";
/// Directories that a run without `-o` tries.
const MOST_RUNS: u32 = 100_000;

/// What the recorder is told: its `DEFAULTS` have the same keys.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Options {
    pub(in crate::cli) max_entries: u64,
    pub(in crate::cli) stacks: Frames,
    pub(in crate::cli) at: At,
    pub(in crate::cli) keep: u64,
    /// Seconds.
    pub(in crate::cli) wait: f64,
}

/// What a directory is made for.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Purpose<'p> {
    /// Directories without a name are called `NAME-1` and so on.
    pub(in crate::cli) name: &'static str,
    /// Files beside the recorder: paths below the control directory, and their text.
    pub(in crate::cli) files: &'p [(&'p str, &'p str)],
    /// What the command finds in its environment.
    pub(in crate::cli) environment: &'p [(&'static str, String)],
}

/// Which frames a stack has.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Frames {
    Python,
    All,
}

/// When snapshots are written.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum At {
    Oom,
    Exit,
}

/// A directory that the recorder writes to.
#[derive(Debug)]
pub(in crate::cli) struct Directory {
    /// As it is called by whoever reads.
    name: PathBuf,
    /// The same from every directory.
    path: PathBuf,
    is_ours: bool,
    before: Vec<PathBuf>,
    environment: Vec<(&'static str, String)>,
}

/// How far the processes of a run came.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::cli) struct Seen {
    pub(super) python: bool,
    pub(super) torch: bool,
    /// A torch that was built without CUDA.
    pub(super) torch_without_cuda: bool,
    /// Processes that were recorded.
    pub(super) recorded: usize,
}

impl Directory {
    /// Makes it, with the recorder in it.
    pub(in crate::cli) fn prepare(
        asked: Option<&Path>,
        options: &Options,
        purpose: Purpose<'_>,
    ) -> anyhow::Result<Self> {
        let (path, is_ours) = match asked {
            Some(path) => {
                let is_new = !path.exists();
                fs::create_dir_all(path)
                    .with_context(|| format!("{}: cannot be made", path.display()))?;
                (path.to_owned(), is_new)
            }
            None => (next_free(purpose.name)?, true),
        };
        let before = snapshots_in(&path);
        let control = path.join(CONTROL);
        // With a control directory another command records there now: a task of the same job, perhaps.
        if !before.is_empty() && !control.exists() {
            bail!(
                "{}: holds snapshots already, which would mix with those of this run: name another directory",
                path.display()
            );
        }
        let environment = purpose.environment.to_vec();
        let directory =
            Self { path: std::path::absolute(&path)?, name: path, is_ours, before, environment };
        directory.write_recorder(options, purpose.files).with_context(|| {
            format!("{}: the recorder cannot be written there", directory.name.display())
        })?;
        Ok(directory)
    }

    fn write_recorder(&self, options: &Options, others: &[(&str, &str)]) -> io::Result<()> {
        let control = self.control();
        let config = serde_json::to_string(options)?;
        let own = [("sitecustomize.py", RECORDER), ("config", config.as_str())];
        for (name, text) in own.iter().chain(others) {
            let path = control.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&control))?;
            WholeFile::open(&path)?.write_by(|out| out.write_all(text.as_bytes()))?;
        }
        Ok(())
    }

    /// Where the snapshots go; absolute.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the command finds in its environment besides.
    pub(super) fn environment(&self) -> &[(&'static str, String)] {
        &self.environment
    }

    /// What belongs on PYTHONPATH.
    pub(super) fn control(&self) -> PathBuf {
        self.path.join(CONTROL)
    }

    /// What came of it: how far processes came, and the snapshots of this run. What is of no more use is removed.
    pub(in crate::cli) fn finish(self) -> (Seen, Vec<PathBuf>) {
        let control = self.control();
        let processes = Recorded::all(&self.path);
        let seen = Seen {
            python: control.join("saw-python").exists(),
            torch: control.join("saw-torch").exists(),
            torch_without_cuda: control.join("saw-torch-without-cuda").exists(),
            recorded: processes.len(),
        };
        let mut snapshots = snapshots_in(&self.name);
        snapshots.retain(|path| !self.before.contains(path));
        // Whatever goes on in the background still needs it. A directory that cannot be removed stays.
        if !processes.iter().any(Recorded::may_live) {
            let _ = fs::remove_dir_all(&control);
        }
        if self.is_ours {
            let _ = fs::remove_dir(&self.path);
        }
        (seen, snapshots)
    }
}

/// Makes the first `NAME-N` that is not there. Tasks of one job may start at the same time.
pub(in crate::cli) fn next_free(name: &str) -> anyhow::Result<PathBuf> {
    for number in 1..MOST_RUNS {
        let path = PathBuf::from(format!("{name}-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let what = "cannot be made here; -o DIR names another place";
                return Err(error).with_context(|| format!("{}: {what}", path.display()));
            }
        }
    }
    bail!("there are too many directories {name}-N here: remove some")
}

/// The snapshots that a recorder left in `directory`, by name.
pub(in crate::cli) fn snapshots_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_snapshot = |path: &PathBuf| path.to_string_lossy().ends_with(".pickle.gz");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_snapshot).collect();
    found.sort();
    found
}

/// A process that is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Recorded {
    /// `HOST-PID`
    name: String,
    /// What it last wrote down as done; empty at first, `writing` meanwhile.
    answer: String,
}

impl Recorded {
    /// All of them, in the run that writes to `directory`.
    pub(in crate::cli) fn all(directory: &Path) -> Vec<Self> {
        let control = directory.join(CONTROL);
        let entries = fs::read_dir(&control).into_iter().flatten().flatten();
        let names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let mut answers = BTreeMap::new();
        for name in names.iter().filter_map(|name| name.strip_prefix("recorded-")) {
            // Not whole yet.
            if Path::new(name).extension().is_none_or(|ending| ending != "part") {
                let answer = fs::read_to_string(control.join(format!("done-{name}")));
                answers.insert(name.to_owned(), answer.unwrap_or_default());
            }
        }
        answers.into_iter().map(|(name, answer)| Self { name, answer }).collect()
    }

    /// Asks all of `directory` for a snapshot each, as the processes ask each other.
    pub(in crate::cli) fn ask(directory: &Path) -> io::Result<()> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos());
        let request = format!("by hand {} {now}", std::process::id());
        WholeFile::open(&directory.join(CONTROL).join("dump"))?
            .write_by(|out| out.write_all(request.as_bytes()))
    }

    /// Whether it has not answered since it was as `before`.
    pub(in crate::cli) fn is_still(&self, before: &Self) -> bool {
        self.name == before.name && (self.answer == before.answer || self.answer == "writing")
    }

    /// Whether it has not said that it ended, and nothing shows that it did. What runs on another host may live.
    pub(in crate::cli) fn may_live(&self) -> bool {
        self.answer != "gone" && is_there(&self.name)
    }
}

#[cfg(unix)]
fn is_there(name: &str) -> bool {
    use rustix::process::{Pid, test_kill_process};
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
fn is_there(_name: &str) -> bool {
    true
}

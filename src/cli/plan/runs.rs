//! The dry runs of a plan. They are kept in `DIR/plan.json`, so that an interrupted plan continues.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::allocator::conf::{ConfChange, EXPANDABLE_SEGMENTS};
use crate::base::units::{count, size};
use crate::cli::atomic_file::AtomicFile;
use crate::cli::dry_run::{DryRunOptions, Intervention, SizeRun, fill_placeholder};
use crate::cli::exit::print_stderr;
use crate::whatif::plan::PlanRun;

/// Maximum number of runs.
pub(super) const MAX_RUNS: usize = 15;
/// The file of the runs made.
const STATE_FILE: &str = "plan.json";

pub(super) struct Runs<'r> {
    directory: &'r Path,
    command: &'r [OsString],
    /// The placeholder.
    name: &'r str,
    state: State,
    /// The program sets its allocator settings itself, so others cannot be tried.
    has_own_settings: bool,
}

/// The contents of `plan.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    command: Vec<String>,
    runs: Vec<PlanRun>,
    /// The settings string of the first run, which its environment gave it.
    settings: String,
}

impl<'r> Runs<'r> {
    /// Opens the runs in `directory`, which may be new.
    pub(super) fn open(directory: &'r Path, command: &'r [OsString], name: &'r str) -> anyhow::Result<Self> {
        let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let file = directory.join(STATE_FILE);
        let state = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => State { command: words, ..State::default() },
            Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", file.display())),
            Ok(bytes) => {
                let state: State = serde_json::from_slice(&bytes)
                    .with_context(|| format!("{}: is damaged; remove the directory", file.display()))?;
                if state.command != words {
                    let (place, command) = (directory.display(), state.command.join(" "));
                    bail!("{place}: has the runs of another command: {command}; name another directory with --runs");
                }
                state
            }
        };
        if !state.runs.is_empty() {
            print_stderr(&format!("{} of at most {MAX_RUNS} runs are in {}", state.runs.len(), directory.display()));
        }
        Ok(Self { directory, command, name, state, has_own_settings: false })
    }

    /// The runs so far.
    pub(super) fn made(&self) -> &[PlanRun] {
        &self.state.runs
    }

    /// The run of this size on this GPU, made if there is none yet; `None` if no run is left, or if the program does not
    /// take the setting.
    pub(super) fn make(&mut self, gpu: &str, value: u64, expandable_segments: bool) -> anyhow::Result<Option<PlanRun>> {
        let mut same_gpu = self.state.runs.iter().filter(|run| run.gpu == gpu);
        if let Some(made) = same_gpu.find(|run| run.size == value && run.expandable_segments == expandable_segments) {
            return Ok(Some(made.clone()));
        }
        if self.state.runs.len() >= MAX_RUNS || expandable_segments && self.has_own_settings {
            return Ok(None);
        }
        let with = if expandable_segments { "-expandable" } else { "" };
        let directory = self.directory.join(format!("{gpu}-{}-{value}{with}", self.name));
        fs::create_dir_all(self.directory)
            .with_context(|| format!("{}: cannot be created", self.directory.display()))?;
        let command = fill_placeholder(self.command, self.name, value);
        let settings = ConfChange::parse(EXPANDABLE_SEGMENTS).apply_to(&self.state.settings);
        let intervention =
            if expandable_segments { Intervention::with_settings(&settings) } else { Intervention::default() };
        let label = format!("{} = {} on {gpu}", self.name, count(value));
        let options = DryRunOptions::on_gpu(gpu, None)?;
        let run = SizeRun::record(&options, &command, &directory, intervention, &label)?;
        let in_effect = run.report.settings_string.clone().unwrap_or_default();
        if expandable_segments && in_effect != settings && run.report.settings_string.is_some() {
            print_stderr("the program chooses its own allocator settings: expandable segments are predicted only");
            self.has_own_settings = true;
            return Ok(None);
        }
        if self.state.runs.is_empty() {
            self.state.settings = in_effect;
        }
        let made = PlanRun {
            gpu: gpu.to_owned(),
            expandable_segments,
            size: value,
            fits: !run.has_failed,
            is_certain: run.is_certain,
            reserved_bytes: run.reserved(),
            snapshot: run.snapshot.display().to_string(),
        };
        self.state.runs.push(made.clone());
        self.save()?;
        let with = if expandable_segments { " with expandable_segments:True" } else { "" };
        let result =
            if made.fits { format!("fits, {} reserved", size(made.reserved_bytes)) } else { "fails".to_owned() };
        print_stderr(&format!("{label}{with}: {result} (run {} of at most {MAX_RUNS})", self.state.runs.len()));
        Ok(Some(made))
    }

    fn save(&self) -> anyhow::Result<()> {
        let file = self.directory.join(STATE_FILE);
        let text = format!("{:#}", json!(self.state));
        AtomicFile::replace(&file)
            .and_then(|file| file.write_with(|out| out.write_all(text.as_bytes())))
            .with_context(|| format!("{}: cannot be written", file.display()))
    }
}

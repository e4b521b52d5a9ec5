//! Reads and writes an entry of a baseline.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::args::Check;
use crate::base::input::read_text_file;
use crate::base::warning::Code;
use crate::cli::atomic_file::{AtomicFile, parent_of};
use crate::cli::config::Config;
use crate::cli::directory_lock::{DirectoryLock, FlockOperation};
use crate::cli::exit::print_stderr;
use crate::cli::inputs::{self, with_slashes};
use crate::compare::gate::{
    AllowMissing, BaselineComparison, BaselineEntries, BaselineEntry, JudgedSnapshot, NamedEntry, Objection,
    objections, repeated_rank,
};

/// The entry that a check compares with, or writes.
pub(super) struct EntryArgs {
    pub(super) path: PathBuf,
    name: String,
    /// The entry before; `None` if the baseline lacks it.
    pub(super) before: Option<BaselineEntry>,
    /// The check writes the entry in place of a comparison.
    pub(super) is_written: bool,
}

/// The entry of a run.
pub(super) struct MeasuredEntry {
    entry: BaselineEntry,
    /// Why it must not be written.
    refusal: Option<String>,
}

impl EntryArgs {
    /// The entry of the baseline of `args`, or else of `config`. `command` is the default name.
    pub(super) fn load(
        args: &Check,
        (config, config_path): (&Config, Option<&Path>),
        command: Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        let directory = config_path.and_then(Path::parent).unwrap_or(Path::new(""));
        let path = args.baseline.clone().or_else(|| Some(directory.join(config.baseline.as_ref()?)));
        let Some(path) = path else {
            if args.entry.is_some() || args.add || args.update {
                bail!("--entry, --add and --update need a baseline: give --baseline oomscope-baseline.json");
            }
            return Ok(None);
        };
        if inputs::is_stdin(&path) {
            bail!("-: a baseline is a file, not standard input");
        }
        let name = args.entry.clone().or(command).or_else(|| only_name(&args.given_snapshots()));
        let name = name.ok_or_else(|| anyhow!("the baseline needs the name of an entry: give --entry NAME"))?;
        let before = read_entries(&path)?.get(&name).cloned();
        let is_written = args.update || (args.add && before.is_none());
        Ok(Some(Self { path, name, before, is_written }))
    }

    /// The entry to compare with.
    pub(super) fn named(&self) -> NamedEntry<'_> {
        NamedEntry { name: &self.name, entry: self.before.as_ref() }
    }

    /// The entry of a run, and the objections to comparing it with the one before.
    pub(super) fn measure(
        &self,
        judged: &[JudgedSnapshot],
        allow_missing: &AllowMissing,
    ) -> (MeasuredEntry, Vec<Objection>) {
        let mut entry = BaselineEntry {
            gpu: judged.iter().find_map(|snapshot| snapshot.gpu.clone()),
            torch: judged.iter().find_map(|snapshot| snapshot.torch.clone()),
            devices: judged.iter().flat_map(|snapshot| snapshot.measured.iter().cloned()).collect(),
        };
        entry.sort();
        let refusal = self.refusal(judged, &entry, allow_missing);
        let before = self.before.as_ref().filter(|_| !self.is_written);
        let objections = before.map(|before| objections(before, &entry, judged, allow_missing));
        (MeasuredEntry { entry, refusal }, objections.unwrap_or_default())
    }

    /// Why `entry` of the snapshots `judged` must not be written: it has less than the run, or than the entry before.
    fn refusal(&self, judged: &[JudgedSnapshot], entry: &BaselineEntry, allowed: &AllowMissing) -> Option<String> {
        if let Some((path, why)) = judged.iter().find_map(|judged| Some((&judged.path, judged.incomplete.as_ref()?))) {
            return Some(format!("{path}: {why}"));
        }
        if let Some((first, second)) = repeated_rank(judged) {
            return Some(format!("{first} and {second} have the same name: give one of them, or their directory"));
        }
        if entry.devices.is_empty() {
            return Some("nothing was measured".to_owned());
        }
        let lost = self.before.as_ref()?.row_missing_in(entry)?;
        let process = if lost.process.is_empty() { String::new() } else { format!(" of {}", lost.process) };
        (!allowed.contains(Code::NotChecked.word())).then(|| {
            let accept = "--allow-missing not-checked accepts that";
            format!("the entry has GPU {}{process}, which is missing now; {accept}", lost.device)
        })
    }

    /// Compares `measured` with the entry before. Writes it if that is wanted and the check has `passed`.
    pub(super) fn finish(&self, measured: MeasuredEntry, passed: bool) -> anyhow::Result<BaselineComparison> {
        let MeasuredEntry { entry, refusal } = measured;
        let path = self.path.display().to_string();
        let mut comparison = BaselineComparison::new(path, self.name.clone(), self.before.as_ref(), &entry);
        match refusal {
            _ if !self.is_written => {}
            _ if !passed => print_stderr(&format!("{}: not written, because the check failed", self.path.display())),
            Some(why) => comparison.not_written = Some(why),
            None => comparison.written = Some(self.write(entry)?),
        }
        Ok(comparison)
    }

    /// Writes `entry`. Other processes may do the same with other entries of the file.
    fn write(&self, entry: BaselineEntry) -> anyhow::Result<&'static str> {
        let shown = self.path.display();
        let what = if self.before.is_some() { "updated" } else { "added" };
        // The file itself is replaced.
        let lock = DirectoryLock::take(parent_of(&self.path), FlockOperation::LockExclusive)
            .with_context(|| format!("{shown}: its directory cannot be locked"))?;
        let mut entries = read_entries(&self.path)?;
        entries.set(&self.name, entry);
        let text = entries.to_text()?;
        AtomicFile::open(&self.path)
            .and_then(|file| file.write_with(|out| out.write_all(text.as_bytes())))
            .with_context(|| format!("{shown}: cannot be written"))?;
        drop(lock);
        print_stderr(&format!("{shown}: entry {} {what}", self.name));
        Ok(what)
    }
}

/// The name of the only snapshot or directory.
fn only_name(paths: &[PathBuf]) -> Option<String> {
    let [path] = paths else { return None };
    path.file_name().map(|name| with_slashes(Path::new(name)))
}

/// The name of a snapshot in an entry: its path relative to the named directory, or its file name.
pub(super) fn name_in_entry(path: &str, named: &[PathBuf]) -> String {
    let path = Path::new(path);
    let inside = named.iter().filter(|dir| dir.as_path() != path).find_map(|dir| path.strip_prefix(dir).ok());
    with_slashes(inside.unwrap_or_else(|| path.file_name().map_or(path, Path::new)))
}

/// The entries of the file at `path`; none if it is yet to be written.
fn read_entries(path: &Path) -> anyhow::Result<BaselineEntries> {
    match read_text_file(path) {
        Ok(text) => BaselineEntries::parse(&text).map_err(|error| {
            anyhow!("the baseline {} {error}; oomscope check --baseline FILE.json --add writes one", path.display())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BaselineEntries::default()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            bail!("{} is no baseline; oomscope check --baseline FILE.json --add writes one", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("the baseline {} cannot be read", path.display())),
    }
}

//! Reads and writes an entry of a baseline.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::args::Check;
use crate::base::input::read_text_file;
use crate::cli::atomic_file::AtomicFile;
use crate::cli::config::Config;
use crate::cli::directory_lock::DirectoryLock;
use crate::cli::exit::print_stderr;
use crate::cli::inputs::{self, with_slashes};
use crate::compare::gate::{BaselineComparison, BaselineEntries, BaselineEntry, JudgedSnapshot, NamedEntry};

/// The entry that a check compares with, or writes.
pub(super) struct EntryArgs {
    pub(super) path: PathBuf,
    name: String,
    /// The entry before; `None` if the baseline lacks it.
    pub(super) before: Option<BaselineEntry>,
    /// The check writes the entry in place of a comparison.
    pub(super) is_written: bool,
}

impl EntryArgs {
    /// The entry of the baseline of `args`, or else of `config`. `command` is the default name.
    pub(super) fn load(
        args: &Check,
        (config, config_path): (&Config, Option<&Path>),
        command: Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        let in_config_directory = |name: &String| {
            let directory = config_path.and_then(Path::parent).unwrap_or(Path::new(""));
            directory.join(name)
        };
        let path = args.baseline.clone().or_else(|| config.baseline.as_ref().map(in_config_directory));
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

    /// The entry of a run. Fails if it is to be written and a snapshot has no history.
    pub(super) fn measure(&self, judged: &[JudgedSnapshot]) -> anyhow::Result<BaselineEntry> {
        if let Some(without) = judged.iter().find(|snapshot| self.is_written && snapshot.measured.is_empty()) {
            bail!("{}: no history was recorded, so it has no peaks to compare", without.path);
        }
        let mut entry = BaselineEntry {
            gpu: judged.iter().find_map(|snapshot| snapshot.gpu.clone()),
            torch: judged.iter().find_map(|snapshot| snapshot.torch.clone()),
            devices: judged.iter().flat_map(|snapshot| snapshot.measured.iter().cloned()).collect(),
        };
        entry.sort();
        Ok(entry)
    }

    /// Compares `entry` with the one before. Writes it if that is wanted and the check has `passed`.
    pub(super) fn finish(&self, entry: BaselineEntry, passed: bool) -> anyhow::Result<BaselineComparison> {
        let path = self.path.display().to_string();
        let mut comparison = BaselineComparison::new(path, self.name.clone(), self.before.as_ref(), &entry);
        if self.is_written && passed {
            comparison.written = Some(self.write(entry)?);
        } else if self.is_written {
            print_stderr(&format!("{}: not written, because the check failed", self.path.display()));
        }
        Ok(comparison)
    }

    /// Writes `entry`. Other processes may do the same with other entries of the file.
    fn write(&self, entry: BaselineEntry) -> anyhow::Result<&'static str> {
        let shown = self.path.display();
        let what = if self.before.is_some() { "updated" } else { "added" };
        let directory = self.path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        // The file itself is replaced.
        let lock =
            DirectoryLock::exclusive(directory).with_context(|| format!("{shown}: its directory cannot be locked"))?;
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
    let mut inside = named.iter().filter(|dir| dir.as_path() != path);
    let inside = inside.find_map(|dir| path.strip_prefix(dir).ok());
    let name = inside.unwrap_or_else(|| path.file_name().map_or(path, Path::new));
    with_slashes(name)
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

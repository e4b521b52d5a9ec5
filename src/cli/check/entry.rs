//! Reads and writes an entry of a baseline with several tests or commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::args::Check;
use crate::cli::atomic_file::AtomicFile;
use crate::cli::directory_lock::DirectoryLock;
use crate::cli::exit::print_stderr;
use crate::compare::gate::{BaselineComparison, BaselineEntries, BaselineEntry, JudgedSnapshot, NamedEntry};

/// The entry that a check compares with, or writes.
pub(super) struct EntryArgs {
    path: PathBuf,
    name: String,
    /// The entry before; `None` if the baseline lacks it.
    pub(super) before: Option<BaselineEntry>,
    /// The check writes the entry in place of a comparison.
    pub(super) is_written: bool,
}

impl EntryArgs {
    /// The entry of the baseline at `path`, if that has entries. `command` is the default name.
    pub(super) fn load(args: &Check, path: Option<PathBuf>, command: Option<String>) -> anyhow::Result<Option<Self>> {
        let is_named = args.entry.is_some() || args.add || args.update;
        let Some(path) = path else {
            if is_named {
                bail!("--entry, --add and --update need a baseline: give --baseline oomscope-baseline.json");
            }
            return Ok(None);
        };
        let is_wanted = is_named || (command.is_some() && has_entries(&path));
        if !is_wanted {
            return Ok(None);
        }
        let name = args.entry.clone().or(command);
        let name = name.ok_or_else(|| anyhow!("--add and --update need the name of an entry: give --entry NAME"))?;
        let before = read_entries(&path)?.get(&name).cloned();
        let is_written = args.update || (args.add && before.is_none());
        Ok(Some(Self { path, name, before, is_written }))
    }

    /// The entry to compare with.
    pub(super) fn named(&self) -> NamedEntry<'_> {
        NamedEntry { name: &self.name, entry: self.before.as_ref() }
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

/// The entry of a run.
pub(super) fn measured_entry(judged: &[JudgedSnapshot]) -> BaselineEntry {
    let mut entry = BaselineEntry {
        gpu: judged.iter().find_map(|snapshot| snapshot.gpu.clone()),
        torch: judged.iter().find_map(|snapshot| snapshot.torch.clone()),
        devices: judged.iter().flat_map(|snapshot| snapshot.measured.iter().cloned()).collect(),
    };
    entry.sort();
    entry
}

/// Whether the file at `path` has entries, or is yet to be written.
fn has_entries(path: &Path) -> bool {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    is_json && fs::read_to_string(path).map_or(!path.exists(), |text| BaselineEntries::is_schema_of(&text))
}

fn read_entries(path: &Path) -> anyhow::Result<BaselineEntries> {
    match fs::read_to_string(path) {
        Ok(text) => BaselineEntries::parse(&text).map_err(|error| anyhow!("the baseline {} {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BaselineEntries::default()),
        Err(error) => Err(error).with_context(|| format!("the baseline {} cannot be read", path.display())),
    }
}

//! Source files that may be read for their text: below `--source`, or for a reader at a terminal below the working
//! directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use clap::Args;

use super::exit::print_stderr;
use crate::python::imported_modules;
use crate::snapshot::Snapshot;
use crate::stacks::frames::{Origin, StackReader};

/// Larger files are not read: nobody writes such source.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The same without `--source`.
const MAX_UNASKED_BYTES: u64 = 1 << 20;
/// Files that are read of a snapshot, at most.
const MAX_FILES: usize = 400;

#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// Quote source lines from files below DIR
    ///
    /// `oomscope run` stores the program's text in the snapshot. For other snapshots, oomscope reads files below DIR, and none
    /// outside: a snapshot from somebody else must not put files of this machine on a page. A file belongs to a recorded
    /// path if it has that path, or the longest end of it. On a terminal the working directory is read without this
    /// option, if a file is not newer than the recording.
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

impl SourceArgs {
    /// Without `--source`, and if `is_terminal`, the working directory.
    pub(super) fn open_at(&self, is_terminal: bool) -> anyhow::Result<SourceDirectory> {
        let Some(directory) = &self.source else {
            let root =
                if is_terminal { std::env::current_dir().and_then(|root| root.canonicalize()).ok() } else { None };
            return Ok(SourceDirectory { root, is_unasked: true });
        };
        let root = directory.canonicalize().with_context(|| format!("{}: cannot be opened", directory.display()))?;
        if !root.is_dir() {
            bail!("{}: is not a directory", directory.display());
        }
        Ok(SourceDirectory { root: Some(root), is_unasked: false })
    }
}

/// The directory of `--source`, if it is given.
#[derive(Debug, Default)]
pub(super) struct SourceDirectory {
    /// Without symbolic links.
    root: Option<PathBuf>,
    /// Nobody named it.
    is_unasked: bool,
}

impl SourceDirectory {
    /// The text of the file with the path `recorded`; `None` if there is none, or if it is newer than the recording, of
    /// which the last entry is of `recorded_us`.
    fn read(&self, recorded: &str, recorded_us: Option<u64>) -> Option<String> {
        let path = find(self.root.as_deref()?, recorded)?;
        if !self.is_unasked {
            return read_text(&path, MAX_FILE_BYTES);
        }
        let modified = path.metadata().ok()?.modified().ok()?;
        let recorded = SystemTime::UNIX_EPOCH + Duration::from_micros(recorded_us?);
        if modified > recorded {
            print_stderr(&format!("{}: is newer than the recording, so its text is not shown", path.display()));
            return None;
        }
        read_text(&path, MAX_UNASKED_BYTES)
    }

    /// Adds the texts of the files in the stacks of `snapshot`, and of those that the program's files import. Recorded
    /// texts win: the files may have changed since.
    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        if self.root.is_none() {
            return;
        }
        // When the last entry of any trace was written.
        let recorded_us = snapshot.devices().filter_map(|device| device.time_us(device.len().checked_sub(1)?)).max();
        let files: BTreeSet<_> = snapshot.stacks.all_frames().map(|frame| frame.file).collect();
        let stacks = StackReader::new(snapshot);
        let [mut own, packages] = [Origin::User, Origin::Package].map(|origin| {
            let paths = files.iter().map(|file| snapshot.text(*file).to_owned());
            paths.filter(|path| stacks.origin_of_file(path) == origin).collect::<Vec<_>>()
        });
        let mut known: BTreeSet<String> = own.iter().cloned().collect();
        for index in 0..MAX_FILES {
            let Some(path) = own.get(index).or_else(|| packages.get(index - own.len())).cloned() else { break };
            if snapshot.source.text(&path).is_none()
                && let Some(text) = self.read(&path, recorded_us)
            {
                snapshot.source.add(&path, text);
            }
            // Other programs may lie in the same directory.
            if index < own.len() {
                let imported = self.imported_by(&path, snapshot.source.text(&path).unwrap_or_default());
                own.extend(imported.into_iter().filter(|path| known.insert(path.clone())));
            }
        }
    }

    /// The files of the modules that the file recorded as `path` imports, as they would be recorded. A module is looked
    /// for beside the file, then beside each directory above it: which of these Python searched is not recorded.
    fn imported_by(&self, path: &str, text: &str) -> Vec<String> {
        let found = self.root.as_deref().and_then(|root| Some((root, find(root, path)?)));
        let Some((root, found)) = found else { return Vec::new() };
        let above = found.ancestors().skip(1).take_while(|directory| directory.starts_with(root));
        let recorded = std::iter::successors(Some(directory_of(path)), |inner| {
            Some(directory_of(inner.trim_end_matches(['/', '\\']))).filter(|outer| !outer.is_empty())
        });
        let directories: Vec<(&Path, &str)> = above.zip(recorded).collect();
        let files = imported_modules(text).into_iter().flat_map(|it| [format!("{it}.py"), format!("{it}/__init__.py")]);
        files
            .filter_map(|file| {
                let (_, recorded) = directories.iter().find(|(directory, _)| directory.join(&file).is_file())?;
                Some(recorded.to_string() + &if path.contains('\\') { file.replace('/', "\\") } else { file })
            })
            .collect()
    }
}

/// The directory of `path` with the slash at its end; empty if there is none.
fn directory_of(path: &str) -> &str {
    path.rfind(['/', '\\']).map_or("", |slash| &path[..=slash])
}

/// The text of a file; `None` if it is larger than `limit`.
fn read_text(path: &Path, limit: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(limit + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= limit).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The file below `root` with the path `recorded`, or else with the longest end of that path.
fn find(root: &Path, recorded: &str) -> Option<PathBuf> {
    // Links are resolved: one of them may lead out.
    root.join(find_below(root, recorded)?).canonicalize().ok().filter(|path| path.starts_with(root))
}

/// `PATH_MAX` of Linux: longer paths cannot be opened.
const MAX_PATH: usize = 4096;

/// The path below `root` of a file from a stack: relative to it, or else (if it was recorded in a container or another
/// checkout) the longest end of its path that exists.
pub(super) fn find_below(root: &Path, recorded: &str) -> Option<PathBuf> {
    // A snapshot from Windows may be read on Linux.
    let recorded = recorded.replace('\\', "/");
    let path = Path::new(&recorded);
    let path = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> = path.components().skip_while(|part| !matches!(part, Component::Normal(_))).collect();
    if parts.iter().any(|part| !matches!(part, Component::Normal(_))) {
        return None;
    }
    // Ends that are too long to open are not tried.
    let lengths = parts.iter().rev().scan(0, |bytes, part| {
        *bytes += part.as_os_str().len() + 1;
        Some(*bytes)
    });
    let tried = lengths.take_while(|bytes| *bytes <= MAX_PATH).count();
    let first = parts.len() - tried;
    let mut ends = (first..parts.len()).map(|from| parts.iter().skip(from).collect::<PathBuf>());
    ends.find(|end| root.join(end).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_the_end_of_a_long_path() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("src")).unwrap();
        std::fs::write(root.path().join("src/x.py"), "").unwrap();
        let long = "/a".repeat(200_000);
        for file in ["/elsewhere/src/x.py", &format!("{long}/src/x.py")] {
            assert_eq!(find_below(root.path(), file), Some(PathBuf::from("src/x.py")));
        }
        assert_eq!(find_below(root.path(), &long), None);
    }
}

//! `--source`: source files that may be read for their text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::analysis::SnapshotReport;
use crate::snapshot::Snapshot;
use crate::stacks::frames::Origin;

/// Larger files are not read: nobody writes such source.
const MAX_FILE_BYTES: u64 = 4 << 20;

#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// Quote source lines from files below DIR
    ///
    /// `oomscope run` stores the lines in the snapshot. For other snapshots, oomscope reads files only with this option,
    /// and none outside DIR: a snapshot from somebody else must not put files of this machine on a page. A file belongs
    /// to a recorded path if it has that path, or the longest end of it.
    #[arg(long, value_name = "DIR")]
    pub(super) source: Option<PathBuf>,
}

impl SourceArgs {
    pub(super) fn open(&self) -> anyhow::Result<SourceDirectory> {
        let Some(directory) = &self.source else { return Ok(SourceDirectory::default()) };
        let root = directory.canonicalize().with_context(|| format!("{}: cannot be opened", directory.display()))?;
        if !root.is_dir() {
            bail!("{}: is not a directory", directory.display());
        }
        Ok(SourceDirectory { root: Some(root) })
    }
}

/// The directory of `--source`, if it is given.
#[derive(Debug, Default)]
pub(super) struct SourceDirectory {
    /// Without symbolic links.
    root: Option<PathBuf>,
}

impl SourceDirectory {
    /// Adds the texts of lines that `report` names.
    pub(super) fn add_to(&self, report: &mut SnapshotReport) {
        if let Some(root) = &self.root {
            report.add_source(|file, lines| read_lines(root, file, lines).unwrap_or_default());
        }
    }

    /// The texts of the files in the stacks of `snapshot`, and of the others beside them, by recorded path.
    pub(super) fn files_of(&self, snapshot: &Snapshot) -> BTreeMap<String, String> {
        let Some(root) = &self.root else { return BTreeMap::new() };
        let files: BTreeSet<_> = snapshot.stacks.all_frames().map(|frame| frame.file).collect();
        let paths = files.into_iter().map(|file| snapshot.text(file));
        let is_user = |path: &&str| Origin::classify(path, 1, "") == Origin::User;
        let texts = paths.filter(is_user).filter_map(|path| Some((path.to_owned(), read_text(&find(root, path)?)?)));
        texts.collect()
    }

    /// Adds the texts of all lines in the stacks of `snapshot`.
    #[cfg(feature = "explore")]
    pub(super) fn add_to_snapshot(&self, snapshot: &mut Snapshot) {
        let Some(root) = &self.root else { return };
        let mut lines = BTreeMap::<_, BTreeSet<u32>>::new();
        for frame in snapshot.stacks.all_frames() {
            lines.entry(frame.file).or_default().insert(frame.line);
        }
        for (file, lines) in lines {
            let file = snapshot.text(file).to_owned();
            for (line, text) in read_lines(root, &file, &lines).unwrap_or_default() {
                snapshot.source.add(&file, line, &text);
            }
        }
    }
}

/// The text of a file; `None` if it is too large.
fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_FILE_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The texts of `lines` of the file with the recorded path `recorded`; `None` if there is none below `root`.
fn read_lines(root: &Path, recorded: &str, lines: &BTreeSet<u32>) -> Option<Vec<(u32, String)>> {
    let last = usize::try_from(*lines.last()?).ok()?;
    let text = read_text(&find(root, recorded)?)?;
    let numbered = (1..).zip(text.split('\n').take(last));
    Some(
        numbered.filter(|(number, _)| lines.contains(number)).map(|(number, text)| (number, text.to_owned())).collect(),
    )
}

/// The file below `root` with the path `recorded`, or else with the longest end of that path.
fn find(root: &Path, recorded: &str) -> Option<PathBuf> {
    let below = |path: &Path| {
        // Links are resolved first: one of them may lead out.
        let path = path.canonicalize().ok().filter(|path| path.starts_with(root))?;
        // A pipe would wait for somebody to write.
        path.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(path)
    };
    let is_absolute = Path::new(recorded).is_absolute();
    let exact = is_absolute.then(|| below(Path::new(recorded))).flatten();
    exact.or_else(|| {
        let parts: Vec<&str> = recorded.split(['/', '\\']).filter(|part| is_name(part)).collect();
        (0..parts.len()).find_map(|start| below(&root.join(parts[start..].iter().collect::<PathBuf>())))
    })
}

/// Whether `part` of a path is a name, not `..` or a drive.
fn is_name(part: &str) -> bool {
    let mut components = Path::new(part).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

//! Recognizes the ranks of a job by the names of their files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The file names of a job's snapshots, to recognize its other ranks.
pub(super) struct RankNames {
    /// Directory, and file name up to the first dot.
    names: BTreeSet<(PathBuf, String)>,
    /// The file names with `#` for every number.
    patterns: BTreeSet<String>,
}

impl RankNames {
    pub(super) fn from_snapshots<'a>(snapshots: impl Iterator<Item = &'a Path>) -> Self {
        let names: BTreeSet<_> = snapshots.map(rank_name).collect();
        let patterns = names.iter().map(|(_, name)| without_numbers(name)).collect();
        Self { names, patterns }
    }

    /// True if `path` is named like another rank, and not like a file that belongs to one of the snapshots.
    pub(super) fn has_sibling(&self, path: &Path) -> bool {
        let name = rank_name(path);
        self.patterns.contains(&without_numbers(&name.1)) && !self.names.contains(&name)
    }
}

fn rank_name(path: &Path) -> (PathBuf, String) {
    // A path such as `..` has no name, so no other file is named like it.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split_once('.').map_or(&*name, |(stem, _)| stem).to_owned();
    (path.parent().unwrap_or(Path::new("")).to_owned(), name)
}

fn without_numbers(name: &str) -> String {
    let mut pattern: String = name.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    while pattern.contains("##") {
        pattern = pattern.replace("##", "#");
    }
    pattern
}

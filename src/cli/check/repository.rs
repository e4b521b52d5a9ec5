//! Where the files that a stack names are in the repository: annotations name them from its root.

use std::path::{Component, Path, PathBuf};

/// The root of the repository around the working directory; that itself where there is none.
pub(super) fn repository() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors()
        .find(|dir| dir.join(".git").exists())
        .map_or_else(|| here.clone(), Path::to_owned)
}

/// Where a file that a stack names is in the repository: under its root, else (recorded in a container, or
/// from another directory) the longest end of its path that is there.
pub(super) fn source(root: &Path, file: &str) -> Option<String> {
    // A file of Windows' may be checked on Linux.
    let file = file.replace('\\', "/");
    let path = Path::new(&file);
    let path = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> =
        path.components().skip_while(|part| !matches!(part, Component::Normal(_))).collect();
    if parts.iter().any(|part| !matches!(part, Component::Normal(_))) {
        return None;
    }
    let ends = (0..parts.len()).map(|from| parts.iter().skip(from).collect::<PathBuf>());
    ends.into_iter().find(|end| root.join(end).is_file()).map(|end| with_slashes(&end))
}

/// Its parts with slashes between them, on every system.
pub(super) fn with_slashes(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

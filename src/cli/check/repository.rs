//! Finds source files of stacks in the repository, since annotations need paths relative to its root.

use std::path::{Path, PathBuf};

use crate::cli::inputs::with_slashes;
use crate::cli::source::find_below;

/// The root of the repository that contains the working directory, or else the working directory.
pub(super) fn repository_root() -> PathBuf {
    // A deleted working directory has no files to annotate.
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().find(|dir| dir.join(".git").exists()).map_or_else(|| here.clone(), Path::to_owned)
}

/// The path in the repository of a file from a stack.
pub(super) fn find_source(root: &Path, file: &str) -> Option<String> {
    find_below(root, file).map(|path| with_slashes(&path))
}

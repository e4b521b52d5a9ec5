//! The files that a program wrote in a dry run, which are in the output directory instead of their own places.

use std::fs;
use std::path::{Path, PathBuf};

use itertools::Itertools as _;

use crate::base::units::counted;
use crate::cli::inputs::paths_below;

/// The recorder's overlay (`python/oomscope/_files.py`) puts the copy of `/a/b` at `DIR/files/a/b`.
const FILES_DIR: &str = "files";
/// Maximum number of names in the list.
const MAX_NAMES: usize = 5;

/// The line before the program starts.
pub(super) fn announce(directory: &Path) -> String {
    format!(
        "dry run: files that the program writes go to {}, so that none of yours changes (--real-files: to their own \
         places)",
        directory.join(FILES_DIR).display()
    )
}

/// Lists what the program wrote, or removes the directory if that is nothing.
pub(super) fn list(directory: &Path) -> Option<String> {
    let root = directory.join(FILES_DIR);
    let files: Vec<PathBuf> = paths_below(&root).into_iter().flatten().sorted().collect();
    if files.is_empty() {
        // There are at most empty directories. If they cannot be removed, they do no harm.
        let _ = fs::remove_dir_all(&root);
        return None;
    }
    let originals = files.iter().take(MAX_NAMES).map(|path| match path.strip_prefix(&root) {
        Ok(rest) => Path::new("/").join(rest).display().to_string(),
        Err(_) => path.display().to_string(),
    });
    let names: Vec<String> = originals.collect();
    let more = match files.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let (count, verb) = (counted(files.len() as u64, "file"), if files.len() == 1 { "is" } else { "are" });
    Some(format!("{count} that the program wrote {verb} in {}: {}{more}", root.display(), names.join(", ")))
}

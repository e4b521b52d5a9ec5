//! Finds source files of stacks in the repository, since annotations need paths relative to its root.

use std::path::{Component, Path, PathBuf};

use crate::cli::inputs::with_slashes;

/// The root of the repository that contains the working directory, or else the working directory.
pub(super) fn repository_root() -> PathBuf {
    // A deleted working directory has no files to annotate.
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().find(|dir| dir.join(".git").exists()).map_or_else(|| here.clone(), Path::to_owned)
}

/// `PATH_MAX` of Linux: longer paths cannot be opened.
const MAX_PATH: usize = 4096;

/// The path in the repository of a file from a stack: relative to the root, or else (if it was recorded in a container
/// or another checkout) the longest end of its path that exists.
pub(super) fn find_source(root: &Path, file: &str) -> Option<String> {
    // A snapshot from Windows may be checked on Linux.
    let file = file.replace('\\', "/");
    let path = Path::new(&file);
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
    ends.find(|end| root.join(end).is_file()).map(|end| with_slashes(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_the_end_of_a_long_path() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("src")).unwrap();
        std::fs::write(root.path().join("src/x.py"), "").unwrap();
        let found = |file: &str| find_source(root.path(), file);
        assert_eq!(found("/elsewhere/src/x.py").as_deref(), Some("src/x.py"));
        let long = format!("{}/src/x.py", "/a".repeat(200_000));
        assert_eq!(found(&long).as_deref(), Some("src/x.py"));
        assert_eq!(found(&"/a".repeat(200_000)), None);
    }
}

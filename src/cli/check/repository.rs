//! Where the files that a stack names are in the repository: annotations name them from its root.

use std::path::{Component, Path, PathBuf};

use crate::cli::inputs::with_slashes;

/// The root of the repository around the working directory; that itself where there is none.
pub(super) fn repository() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors()
        .find(|dir| dir.join(".git").exists())
        .map_or_else(|| here.clone(), Path::to_owned)
}

/// Bytes of the longest path that systems open (`PATH_MAX` of Linux).
const LONGEST: usize = 4096;

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
    // Each end is a part longer than the next: those too long to be opened are not tried.
    let lengths = parts.iter().rev().scan(0, |bytes, part| {
        *bytes += part.as_os_str().len() + 1;
        Some(*bytes)
    });
    let tried = lengths.take_while(|bytes| *bytes <= LONGEST).count();
    let first = parts.len() - tried;
    let mut ends = (first..parts.len()).map(|from| parts.iter().skip(from).collect::<PathBuf>());
    ends.find(|end| root.join(end).is_file()).map(|end| with_slashes(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_too_long_to_be_told_from_its_end() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("src")).unwrap();
        std::fs::write(root.path().join("src/x.py"), "").unwrap();
        let found = |file: &str| source(root.path(), file);
        assert_eq!(found("/elsewhere/src/x.py").as_deref(), Some("src/x.py"));
        let long = format!("{}/src/x.py", "/a".repeat(200_000));
        assert_eq!(found(&long).as_deref(), Some("src/x.py"));
        assert_eq!(found(&"/a".repeat(200_000)), None);
    }
}

//! Writes a directory of files so that all of them appear together: they are written elsewhere, then moved.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::atomic_file::{parent_of, temporary_builder};
use super::signals::{TemporaryPath, create_temporary, without_interruption};

pub(super) struct AtomicDirectory {
    staged: TempDir,
    target: PathBuf,
    /// Removes the directory if a signal ends the program.
    path: TemporaryPath,
}

impl AtomicDirectory {
    /// Makes an empty directory for the files of `target`, which may exist.
    pub(super) fn new(target: &Path) -> io::Result<Self> {
        // The target may be a link.
        let target = target.canonicalize().unwrap_or_else(|_| target.to_owned());
        let parent = parent_of(&target);
        fs::create_dir_all(parent)?;
        let create = |place: &Path| create_temporary(|| temporary_builder(place, 0o777).tempdir_in(place));
        // Only within one file system the files can be moved, and the parent may not be writable.
        let beside = if is_same_device(parent, &target) { create(parent) } else { create(&target) };
        let (staged, path) = match beside {
            Err(_) if target.is_dir() => create(&target)?,
            beside => beside?,
        };
        Ok(Self { staged, target, path })
    }

    /// Where to write the files.
    pub(super) fn path(&self) -> &Path {
        self.staged.path()
    }

    /// Puts the files into the target, in place of files of the same names.
    pub(super) fn finish(self) -> io::Result<()> {
        let staged = names_in(self.path())?;
        for name in &staged {
            File::open(self.path().join(name))?.sync_all()?;
        }
        let (from, to) = (self.path(), self.target.as_path());
        without_interruption(|| {
            if !to.exists() {
                return fs::rename(from, to);
            }
            if names_in(to)?.is_subset(&staged) && exchange(from, to).is_ok() {
                return Ok(());
            }
            staged.iter().try_for_each(|name| fs::rename(from.join(name), to.join(name)))
        })?;
        // The former files, or nothing.
        let Self { staged, path, .. } = self;
        let _ = staged.close();
        drop(path);
        Ok(())
    }
}

fn names_in(directory: &Path) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

#[cfg(unix)]
fn is_same_device(parent: &Path, target: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    device(target).is_none_or(|target| device(parent) == Some(target))
}

#[cfg(not(unix))]
fn is_same_device(_: &Path, target: &Path) -> bool {
    !target.exists()
}

/// Swaps two directories in one step.
#[cfg(target_os = "linux")]
fn exchange(staged: &Path, target: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    fs::set_permissions(staged, fs::metadata(target)?.permissions())?;
    Ok(renameat_with(CWD, staged, CWD, target, RenameFlags::EXCHANGE)?)
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

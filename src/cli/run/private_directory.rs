//! Directories in which only this user can write: the recorder runs as code in every Python process of the command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cli::inputs::paths_below;

/// Creates `path` if it is missing, without write permission for others. Returns whether it was created. Fails if other
/// users may write to an existing directory: they could replace a file by a link.
pub(super) fn create_or_check(path: &Path) -> anyhow::Result<bool> {
    let is_new = !path.exists();
    create_with_mode(path, 0o755, true).with_context(|| format!("{}: cannot be created", path.display()))?;
    if is_writable_by_others(&fs::metadata(path).with_context(|| format!("{}: cannot be read", path.display()))?) {
        bail!(
            "{}: other users may write to it, and could replace the recorder; chmod go-w it, or name a new directory",
            path.display()
        );
    }
    Ok(is_new)
}

/// Creates the first free one of `paths`, without write permission for others; `None` if all exist. Tasks of a job may do
/// this at the same time.
pub(super) fn create_first(paths: impl Iterator<Item = PathBuf>, hint: &str) -> anyhow::Result<Option<PathBuf>> {
    for path in paths {
        match create_with_mode(&path, 0o755, false) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => {
                created.with_context(|| format!("{}: cannot be created{hint}", path.display()))?;
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// Creates `control` if it is missing, for this user only, and refuses one that is not this user's, or that holds links:
/// files would be written through them.
pub(super) fn create_control(control: &Path) -> anyhow::Result<()> {
    let shown = control.display();
    if fs::symlink_metadata(control).is_ok_and(|metadata| !metadata.is_dir()) {
        bail!("{shown}: is not a directory; remove it");
    }
    create_with_mode(control, 0o700, true).with_context(|| format!("{shown}: cannot be created"))?;
    let metadata = fs::metadata(control).with_context(|| format!("{shown}: cannot be read"))?;
    if is_writable_by_others(&metadata) {
        bail!("{shown}: other users may write to it; remove it");
    }
    // Elsewhere permissions are inherited from the directory above.
    #[cfg(unix)]
    fs::set_permissions(control, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .with_context(|| format!("{shown}: its permissions cannot be changed"))?;
    // The first link, or what cannot be read.
    let mut below = paths_below(control).into_iter();
    let link = below.find(|path| path.as_ref().map_or(true, |path| path.is_symlink()));
    if let Some(link) = link.transpose().with_context(|| format!("{shown}: cannot be read"))? {
        bail!("{}: is a link, and the recorder would be written through it; remove it", link.display());
    }
    Ok(())
}

#[cfg_attr(not(unix), expect(unused_variables, reason = "permissions are inherited from the directory above"))]
fn create_with_mode(path: &Path, mode: u32, with_parents: bool) -> io::Result<()> {
    let mut directory = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut directory, mode);
    directory.recursive(with_parents).create(path)
}

/// Whether it belongs to another user than root, or others may write to it. The group of a user alone, which many systems
/// give to each user, has the user's number.
#[cfg(unix)]
fn is_writable_by_others(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (mode, owner) = (metadata.mode(), metadata.uid());
    let user = rustix::process::geteuid().as_raw();
    let is_foreign = owner != user && owner != 0;
    is_foreign || mode & 0o002 != 0 || (mode & 0o020 != 0 && metadata.gid() != owner)
}

/// Permissions on Windows are inherited from the directory above.
#[cfg(not(unix))]
fn is_writable_by_others(_metadata: &fs::Metadata) -> bool {
    false
}

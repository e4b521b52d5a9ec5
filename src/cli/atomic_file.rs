//! Writes files atomically: a temporary file next to the target is renamed when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use super::signals::{TemporaryPath, create_temporary};

pub(super) enum AtomicFile {
    Temporary {
        temporary: NamedTempFile,
        target: PathBuf,
        /// Removes the file if a signal ends the program.
        path: TemporaryPath,
    },
    /// A pipe or a device.
    InPlace(File),
}

impl AtomicFile {
    /// Checks that `path` can be written, without changing an existing file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // These name streams that are already open, such as /dev/stdout.
        let is_special = path.starts_with("/dev") || path.starts_with("/proc");
        let existing = match fs::metadata(path) {
            Ok(metadata) if is_special || !metadata.is_file() => {
                return File::options().write(true).open(path).map(Self::InPlace);
            }
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let target = link_target(path);
        let file = Self::replace(&target)?;
        if let (Some(existing), Self::Temporary { temporary, .. }) = (existing, &file) {
            File::options().write(true).open(&target)?;
            temporary.as_file().set_permissions(existing.permissions())?;
        }
        Ok(file)
    }

    /// Replaces `path` itself, even if it is a link.
    pub(super) fn replace(path: &Path) -> io::Result<Self> {
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        let mut builder = Builder::new();
        builder.prefix(".oomscope-").suffix(".tmp");
        set_permissions(&mut builder);
        let (temporary, registered) = create_temporary(|| builder.tempfile_in(directory.unwrap_or(Path::new("."))))?;
        Ok(Self::Temporary { temporary, target: path.to_owned(), path: registered })
    }

    /// A handle to write the contents through; [`Self::finish`] then replaces the target.
    pub(super) fn handle(&self) -> io::Result<File> {
        match self {
            Self::InPlace(file) => file.try_clone(),
            Self::Temporary { temporary, .. } => temporary.as_file().try_clone(),
        }
    }

    /// Replaces the target by what was written.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::InPlace(_) => Ok(()),
            Self::Temporary { temporary, target, path } => {
                // After a power failure there is the old file or the new one, never an empty one.
                temporary.as_file().sync_all()?;
                let written = temporary.persist(target).map(|_| ()).map_err(|error| error.error);
                drop(path);
                written
            }
        }
    }

    /// Writes the contents and replaces the target.
    pub(super) fn write_with(self, writer: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut out = io::BufWriter::new(self.handle()?);
        writer(&mut out).and_then(|()| out.flush())?;
        drop(out);
        self.finish()
    }
}

/// The file that is written through the link `path`; it may not exist yet.
fn link_target(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    while let Ok(next) = fs::read_link(&target) {
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    target
}

/// Temporary files are private by default; this one gets the permissions of an ordinary new file.
#[cfg(unix)]
fn set_permissions(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt as _;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

/// A new file inherits the permissions of its directory.
#[cfg(not(unix))]
fn set_permissions(_: &mut Builder<'_, '_>) {}

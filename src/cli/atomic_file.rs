//! Writes files atomically: a temporary file next to the target is renamed when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tempfile::{Builder, NamedTempFile};

use super::signals::{TemporaryPath, create_temporary, process_exists, process_name, without_interruption};

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
        let directory = parent_of(path);
        let (temporary, registered) = create_temporary(|| temporary_builder(directory).tempfile_in(directory))?;
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
        Self::finish_all([self])
    }

    /// Replaces all targets; a signal ends the program before the first or after the last.
    pub(super) fn finish_all(files: impl IntoIterator<Item = Self>) -> io::Result<()> {
        let mut complete = Vec::new();
        for file in files {
            if let Self::Temporary { temporary, target, path } = file {
                // After a power failure there is the old file or the new one, never an empty one.
                temporary.as_file().sync_all()?;
                complete.push((temporary, target, path));
            }
        }
        let renamed = complete.into_iter().map(|(temporary, target, path)| (temporary.persist(target), path));
        let replaced: Vec<_> = without_interruption(|| renamed.collect());
        replaced.into_iter().try_for_each(|(result, _)| result.map(drop).map_err(|error| error.error))
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

/// The directory of `path`.
pub(super) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

const PREFIX: &str = ".oomscope-";
const SUFFIX: &str = ".tmp";

/// Makes temporary files in `directory` with the permissions of ordinary new ones. Removes those of processes that were
/// killed.
fn temporary_builder(directory: &Path) -> Builder<'static, 'static> {
    static NAME: LazyLock<String> = LazyLock::new(|| format!("{PREFIX}{}-", process_name()));
    // Errors are ignored: leftovers do no harm.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_left_over(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let mut builder = Builder::new();
    builder.prefix(NAME.as_str()).suffix(SUFFIX);
    // Elsewhere a new file inherits the permissions of its directory.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Whether no process of this host has this temporary file any more.
fn is_left_over(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.rsplit_once('-'));
    process.is_some_and(|(process, _)| !process_exists(process))
}

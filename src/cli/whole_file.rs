//! Files that appear whole or not at all: what is written goes beside the target and takes its name when it is done.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file to be written.
pub(super) enum WholeFile {
    /// Beside the target until it is whole.
    Beside { temporary: NamedTempFile, target: PathBuf },
    /// A pipe or a device, which takes what it gets.
    InPlace(File),
}

impl WholeFile {
    /// Makes sure that `path` can be written; what is there stands.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // What these stand for is open already.
        let is_special = path.starts_with("/dev") || path.starts_with("/proc");
        let there = match fs::metadata(path) {
            Ok(there) if is_special || !there.is_file() => {
                return File::options().write(true).open(path).map(Self::InPlace);
            }
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // A link stays one.
        let target = match &there {
            Some(_) => path.canonicalize()?,
            None => path.to_owned(),
        };
        let directory = target.parent().filter(|parent| *parent != Path::new(""));
        let mut builder = Builder::new();
        builder.prefix(".oomscope-").suffix(".tmp");
        for_others_too(&mut builder);
        let temporary = builder.tempfile_in(directory.unwrap_or(Path::new(".")))?;
        if let Some(there) = there {
            File::options().write(true).open(&target)?;
            temporary.as_file().set_permissions(there.permissions())?;
        }
        Ok(Self::Beside { temporary, target })
    }

    /// Writes what `writer` does, and lets it be seen.
    pub(super) fn write_by(
        self,
        writer: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = |file: &mut File| {
            let mut out = io::BufWriter::new(file);
            writer(&mut out).and_then(|()| out.flush())
        };
        match self {
            Self::InPlace(mut file) => written(&mut file),
            Self::Beside { mut temporary, target } => {
                written(temporary.as_file_mut())?;
                temporary.persist(target).map(|_| ()).map_err(|error| error.error)
            }
        }
    }
}

/// Whoever may read a new file of the user's may read this one.
#[cfg(unix)]
fn for_others_too(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt as _;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

/// A file has the rights of its directory.
#[cfg(not(unix))]
fn for_others_too(_: &mut Builder<'_, '_>) {}

//! Locks on directories, between processes of this program. A process that ends releases its locks.

use std::fs::File;
use std::io;
use std::path::Path;

#[cfg(unix)]
pub(super) use rustix::fs::FlockOperation;

/// How to lock; a lock that is not shared is of this process alone.
#[cfg(not(unix))]
#[derive(Debug, Clone, Copy)]
pub(super) enum FlockOperation {
    LockShared,
    LockExclusive,
    NonBlockingLockExclusive,
}

/// A lock, until it is dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock(#[cfg_attr(not(unix), expect(dead_code, reason = "there are no locks"))] File);

#[cfg(unix)]
impl DirectoryLock {
    /// Locks `directory`; `None` if the system or the file system has no locks on directories. The error is
    /// [`io::ErrorKind::WouldBlock`] if another process has it.
    pub(super) fn take(directory: &Path, operation: FlockOperation) -> io::Result<Option<Self>> {
        use rustix::io::Errno;
        let lock = Self(File::open(directory)?);
        match rustix::fs::flock(&lock.0, operation) {
            Ok(()) => Ok(Some(lock)),
            // Network file systems: no locks, or none on what is open for reading only.
            Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes what others may do.
    pub(super) fn change(&self, operation: FlockOperation) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.0, operation)?)
    }
}

#[cfg(not(unix))]
impl DirectoryLock {
    pub(super) fn take(_: &Path, _: FlockOperation) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn change(&self, _: FlockOperation) -> io::Result<()> {
        Ok(())
    }
}

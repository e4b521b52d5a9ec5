//! Locks on directories, between processes of this program. A process that ends releases its locks.

use std::fs::File;
use std::io;
use std::path::Path;

/// A lock, until it is dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock(File);

/// The answer to an attempt to lock.
#[derive(Debug)]
pub(super) enum LockAttempt {
    Locked(DirectoryLock),
    /// Another process has it.
    Taken,
    /// The system or the file system has no locks on directories.
    Unsupported,
}

#[cfg(unix)]
impl DirectoryLock {
    /// Waits for the lock that nobody else may have; `None` where there are no locks.
    pub(super) fn exclusive(directory: &Path) -> io::Result<Option<Self>> {
        Ok(lock(directory, rustix::fs::FlockOperation::LockExclusive)?.into_lock())
    }

    /// Takes the lock if nobody has it.
    pub(super) fn try_exclusive(directory: &Path) -> io::Result<LockAttempt> {
        lock(directory, rustix::fs::FlockOperation::NonBlockingLockExclusive)
    }

    /// Waits for a lock that many may have.
    pub(super) fn shared(directory: &Path) -> io::Result<Option<Self>> {
        Ok(lock(directory, rustix::fs::FlockOperation::LockShared)?.into_lock())
    }

    /// Lets others share the lock.
    pub(super) fn share(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.0, rustix::fs::FlockOperation::LockShared)?)
    }

    /// Makes a shared lock one that nobody else may have. Returns whether that failed: others share it.
    pub(super) fn is_shared(&self) -> bool {
        rustix::fs::flock(&self.0, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

#[cfg(unix)]
impl LockAttempt {
    fn into_lock(self) -> Option<DirectoryLock> {
        if let Self::Locked(lock) = self { Some(lock) } else { None }
    }
}

#[cfg(unix)]
fn lock(directory: &Path, operation: rustix::fs::FlockOperation) -> io::Result<LockAttempt> {
    use rustix::io::Errno;
    let directory = File::open(directory)?;
    match rustix::fs::flock(&directory, operation) {
        Ok(()) => Ok(LockAttempt::Locked(DirectoryLock(directory))),
        Err(Errno::WOULDBLOCK) => Ok(LockAttempt::Taken),
        // Network file systems: no locks, or none on what is open for reading only.
        Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::NOTSUP) => Ok(LockAttempt::Unsupported),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(unix))]
impl DirectoryLock {
    pub(super) fn exclusive(_: &Path) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn try_exclusive(_: &Path) -> io::Result<LockAttempt> {
        Ok(LockAttempt::Unsupported)
    }

    pub(super) fn shared(_: &Path) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn share(&self) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn is_shared(&self) -> bool {
        false
    }
}

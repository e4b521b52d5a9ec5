//! Why a file is not a readable snapshot.

use thiserror::Error;

use crate::base::units::counted;
use crate::snapshot::pickle::PickleError;

/// Why a file is not a readable snapshot: the rest of a sentence that begins with its name.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// No bytes at all.
    #[error("is empty: the process died before the snapshot was written; dump it again")]
    Empty,
    /// An archive of `torch.save`.
    #[error(
        "is a zip archive, as torch.save writes: give the file that torch.cuda.memory._dump_snapshot() wrote"
    )]
    Zip,
    /// The pickle cannot be read to its end.
    #[error("cannot be read: {error}; {} before that place", counted(*.entries, "whole trace entry"))]
    Pickle {
        /// What is wrong, and where.
        error: PickleError,
        /// Trace entries that were read before it.
        entries: u64,
    },
    /// The JSON cannot be read.
    #[error("cannot be read as JSON: {message} (byte {offset})")]
    Json {
        /// What is wrong.
        message: String,
        /// Where, in bytes.
        offset: u64,
    },
    /// A sound file that holds something else.
    #[error("is not a memory snapshot: {0}")]
    NotSnapshot(String),
}

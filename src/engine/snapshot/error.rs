//! Errors in snapshot files.

use thiserror::Error;

use crate::base::units::counted;
use crate::snapshot::pickle::PickleError;

/// The file cannot be read as a snapshot. The message continues a sentence that starts with the file's name.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// No bytes at all.
    #[error("is empty: the process died before it wrote the snapshot; record it again")]
    Empty,
    /// A file of another kind, by its magic number.
    #[error("is {0}")]
    OtherKind(&'static str),
    /// Not a pickle, a broken one, or one with contents that no snapshot has.
    #[error("cannot be read: {error}; {} before it", counted(*.entries, "complete trace entry"))]
    Pickle {
        /// The cause, with the byte offset.
        error: PickleError,
        /// Complete trace entries before the error.
        entries: u64,
    },
    /// Not JSON, or broken.
    #[error("cannot be read as JSON: {message} (byte {offset})")]
    Json {
        /// The cause, as the JSON parser describes it.
        message: String,
        /// The byte offset.
        offset: u64,
    },
    /// The file is well-formed but contains something else.
    #[error("is not a memory snapshot: {0}")]
    NotSnapshot(String),
}

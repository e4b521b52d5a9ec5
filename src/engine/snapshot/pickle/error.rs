//! Errors in a pickle.

use thiserror::Error;

use super::opcode;
use crate::base::units::size;

/// An error in a pickle, with its position.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{kind} (byte {offset}{})", format_opcode(*.opcode))]
pub struct PickleError {
    /// Byte offset of the opcode in the decompressed pickle.
    pub offset: u64,
    /// The opcode; `None` at the end of the input.
    pub opcode: Option<u8>,
    pub kind: ErrorKind,
}

fn format_opcode(code: Option<u8>) -> String {
    match code.map(|code| (code, opcode::name(code))) {
        Some((_, Some(name))) => format!(", opcode {name}"),
        Some((code, None)) => format!(", opcode 0x{code:02x}"),
        None => String::new(),
    }
}

/// The kind of an error in a pickle.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input ends before the pickle.
    #[error("it ends in the middle: the file is truncated")]
    Truncated,
    /// A byte that is not an opcode.
    #[error("it is not a pickle, or damaged here: no such opcode")]
    UnknownOpcode,
    /// The stack holds fewer values than the opcode needs.
    #[error("it is damaged: the opcode needs a value that is missing")]
    StackUnderflow,
    /// The opcode needs a MARK.
    #[error("it is damaged: the opcode needs a MARK that is missing")]
    NoMark,
    /// A reference to a memo slot that was never written.
    #[error("it is damaged: memo entry {0} was never written")]
    UnwrittenMemo(u64),
    /// A memo number larger than the file.
    #[error("it is damaged: memo number {0} exceeds the size of the file")]
    MemoOutOfRange(u64),
    /// A memo slot is written again while the container in it is still open.
    #[error("it is damaged: memo entry {0} is written again before its content is complete")]
    MemoReused(u64),
    /// A textual number that is not a number.
    #[error("it is damaged: '{0}' is not a number")]
    BadNumber(String),
    /// A string without quotes, or with an invalid escape.
    #[error("it is damaged: {0} is not a quoted string")]
    BadString(String),
    /// A length that is negative or exceeds the address space.
    #[error("it is damaged: invalid length")]
    InvalidLength,
    /// A dict key without a value.
    #[error("it is damaged: a dict key without a value")]
    OddPairs,
    /// Items are added to a value that is not a container.
    #[error("it is damaged: items are added to something that is not a {0}")]
    NotAContainer(&'static str),
    /// An unknown protocol.
    #[error("it is written in pickle protocol {0}; only protocols 0 to 5 are supported")]
    Protocol(u8),
    /// The pickle imports or calls code.
    #[error("it asks Python to load '{0}', which no memory snapshot does: refused, nothing was executed")]
    Refused(String),
    /// A container contains itself, or changes after another container used it.
    #[error("a container contains itself or is changed after use, which no memory snapshot does")]
    Recursive,
    /// The values take too much memory for the size of the file.
    #[error("its values would take {}, from {} of input: no memory snapshot does that", size(*.bytes), size(*.raw_bytes))]
    TooMuchMemory { bytes: u64, raw_bytes: u64 },
    /// The builder rejects the structure.
    #[error("{0}")]
    Unexpected(String),
}

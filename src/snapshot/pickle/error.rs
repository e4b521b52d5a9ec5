//! What can be wrong with a pickle, and where.

use thiserror::Error;

use super::opcode;

/// Why the reading ended early: what, at which byte, in which opcode.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{kind} (byte {offset}{})", opcode_suffix(*.opcode))]
pub struct PickleError {
    /// Where the opcode begins, in bytes of the (decompressed) pickle.
    pub offset: u64,
    /// The opcode that failed; `None` at the end of the input.
    pub opcode: Option<u8>,
    /// What is wrong.
    pub kind: ErrorKind,
}

fn opcode_suffix(code: Option<u8>) -> String {
    match code.map(|code| (code, opcode::name(code))) {
        Some((_, Some(name))) => format!(", opcode {name}"),
        Some((code, None)) => format!(", opcode 0x{code:02x}"),
        None => String::new(),
    }
}

/// What can be wrong with a pickle.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input ends before the pickle does.
    #[error("it ends in the middle: the file is truncated")]
    Truncated,
    /// A byte that is no pickle opcode.
    #[error("it is not a pickle, or damaged here: no such opcode")]
    UnknownOpcode,
    /// The stack holds less than the opcode takes.
    #[error("it is damaged: the opcode takes a value that is not there")]
    StackUnderflow,
    /// No MARK where the opcode needs one.
    #[error("it is damaged: the opcode needs a MARK that is not there")]
    NoMark,
    /// A reference to a memo slot that was never written.
    #[error("it is damaged: memo entry {0} was never written")]
    NoMemo(u64),
    /// A memo number beyond what the file's size allows.
    #[error("it is damaged: memo number {0} in a file of this size")]
    AbsurdMemo(u64),
    /// A memo slot that is written a second time while the first container in it is still open.
    #[error("it is damaged: memo entry {0} is written again before its content is complete")]
    MemoReused(u64),
    /// A number written as text that is no number.
    #[error("it is damaged: '{0}' is not a number")]
    BadNumber(String),
    /// A quoted string that is not quoted, or has an escape that means nothing.
    #[error("it is damaged: {0} is not a quoted string")]
    BadString(String),
    /// A length that is negative or beyond the address space.
    #[error("it is damaged: a length that no file can have")]
    AbsurdLength,
    /// A dict with a key and no value.
    #[error("it is damaged: a dict key without a value")]
    OddPairs,
    /// Items or pairs for something that takes none.
    #[error("it is damaged: items are added to something that is no {0}")]
    NoContainer(&'static str),
    /// A protocol that does not exist yet.
    #[error("it is written in pickle protocol {0}, and protocols 0 to 5 are known")]
    Protocol(u8),
    /// The pickle asks for code to be imported or called.
    #[error(
        "it asks Python to load '{0}', which no memory snapshot does: refused, nothing was run"
    )]
    Refused(String),
    /// A container that contains itself, or is changed after it was used.
    #[error("it contains itself or is changed after use, which no memory snapshot does")]
    Recursive,
    /// The structure is not what the builder expects.
    #[error("{0}")]
    Unexpected(String),
}

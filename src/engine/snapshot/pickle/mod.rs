//! Reading and writing Python pickles of plain data, without executing or importing anything.
//!
//! [`read`] reads protocols 0 to 5: `None`, booleans, numbers, strings, bytes, lists, tuples, sets and dicts. It passes
//! every complete container to a [`Builder`] once, even if the pickle refers to it many times. Values are 64-bit words
//! ([`Value`]); the builder decides what a container becomes. [`PickleWriter`] streams protocol 4, as CPython writes
//! it.
//!
//! The machine does not know PyTorch's data. It does not recurse and does not allocate per opcode. Its stack, marks and
//! memo take at most a small multiple of the input's size, because each entry takes at least one byte of input.
#![warn(clippy::indexing_slicing)]

mod builder;
mod bytes;
mod error;
mod layout_dicts;
mod layouts;
mod machine;
mod memo;
mod opcode;
mod rare_opcodes;
mod reference_lists;
mod reference_runs;
mod text;
mod value;
mod writer;

pub use builder::{Builder, Place, Record};
pub use error::{ErrorKind, PickleError};
pub use machine::{Pickle, looks_like_pickle, read, read_pieces};
pub use text::printable;
pub use value::{Kind, NodeKind, Value};
pub use writer::{MemoKey, PickleWriter};

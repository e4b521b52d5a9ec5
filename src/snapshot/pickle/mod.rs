//! A reader of Python pickles, protocols 0 to 5, for data: `None`, booleans, numbers, strings, bytes,
//! lists, tuples, sets and dicts. Nothing in a pickle is ever executed or imported. And a writer of
//! them, [`PickleWriter`]: protocol 4 as CPython writes it, in a stream that never holds the whole.
//!
//! The [`read`] machine keeps the memo that makes a pickle a graph, and hands every finished
//! container to a [`Builder`], once, however often the pickle refers to it: a shared stack costs its
//! bytes, not its uses. It knows nothing of PyTorch, does not recurse, and allocates nothing per
//! opcode. Values are plain 64-bit words ([`Value`]); what a container becomes is the builder's
//! business.
//!
//! Memory: the machine's own stack, marks and memo are at most a small multiple of the input, since
//! each of their entries takes at least one byte of it.
#![warn(clippy::indexing_slicing)]

mod builder;
mod bytes;
mod error;
mod machine;
mod memo;
mod opcode;
mod rare;
mod runs;
mod text;
mod value;
mod writer;

pub use builder::Builder;
pub use error::{ErrorKind, PickleError};
pub use machine::{Pickle, looks_like_pickle, read};
pub use text::printable;
pub use value::{Kind, NodeKind, Value};
pub use writer::{MemoKey, PickleWriter};

//! Trace entries read back as the calls that the program made.
//!
//! A trace lists effects: one `malloc` may first complete frees, give segments back and take new ones,
//! and writes its own entry last. `reader` says which entries are of one call; [`Program`] is the whole
//! trace as operations on blocks that are named by number, to be made to the model as often as one
//! likes; `Script` is the same with acts that can be left out, added and moved; [`given_back`] says what was given back to the device and on whose account.

mod call;
mod given_back;
mod program;
mod program_reader;
mod prolonged;
mod reader;
mod script;
#[cfg(test)]
mod script_tests;
mod workspaces;

pub(crate) use call::{Boundary, Call};
pub use given_back::{GivenBack, given_back};
pub use program::Program;
pub(crate) use program::{ListRange, Operation, OperationKind, ReleaseScope};
pub use prolonged::Prolonged;
pub(crate) use reader::Calls;
pub(crate) use script::{Op, Block, Script, What};

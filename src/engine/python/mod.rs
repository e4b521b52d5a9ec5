//! Reads Python source text to find which statement keeps a value that a line makes.
//!
//! In: the text of a program's files and the frames of a stack. Out: statements with their targets. Nothing is imported
//! or run, and text that is not Python is skipped.

mod expressions;
mod follow;
mod imports;
mod keepers;
mod large_values;
mod modules;
mod parse;
mod program;
mod running;
#[cfg(test)]
mod tests;
mod tokens;
mod tracked;
mod tree;
mod writes;

pub use self::follow::Keep;
pub use self::imports::imported_modules;
pub use self::large_values::LargeValue;
pub use self::program::{Line, ProgramText};
pub use self::running::{LoopKind, RunningValue};

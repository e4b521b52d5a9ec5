//! Python text understood: which statement keeps a value that a line makes.
//!
//! In: the text of a program's files and the frames of a stack. Out: statements with their targets. Nothing is imported
//! or run, and text that is no Python is skipped.

mod follow;
mod parse;
mod program;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;

pub use self::follow::Keep;
pub use self::program::{Line, ProgramText};

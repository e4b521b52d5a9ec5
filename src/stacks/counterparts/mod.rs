//! Which stack of one snapshot is which of another.
//!
//! Stacks are the same if their frames are; those left over if their functions are and only lines moved; then if a
//! function's file was renamed or stands in another directory. `Vocabulary` gives the frames of both snapshots the
//! same words, `matched` pairs the stacks of two lists.

mod align;
mod matching;
mod moved;
mod names;

pub use self::matching::MatchedBy;
pub(crate) use self::matching::{Candidate, Pair, matched};
pub(crate) use self::names::{Place, Vocabulary};

//! Pairs the stacks of two snapshots that are the same code.
//!
//! Equal frames match first, then equal functions on other lines, then functions whose file was renamed or moved.
//! `FrameTable` gives the frames of both snapshots common ids, `pair_stacks` pairs two lists of stacks.

mod frame_table;
mod pairing;

pub use self::frame_table::{FrameKey, FrameTable};
pub use self::pairing::{Candidate, MatchedBy, Pair, pair_stacks};

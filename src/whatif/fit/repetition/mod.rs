//! Programs that make more requests at larger sizes: a layer, a chunk or a token more.
//!
//! The operations of two recordings are the same, except that the larger one repeats some ranges more often.
//!
//! ```text
//! op_sequence    the operations as tokens that do not depend on sizes and addresses
//! insertions     the ranges that the larger recording has in addition: repetitions of what is before them
//! regions        the repeated ranges of the largest recording
//! count_law      the number of repetitions as a function of the size
//! body           the requests and the frees of one repetition; body_law: the bytes of its requests
//! find           the repetitions that explain every recording; side: one of the recordings
//! repeated       the operations at any number of repetitions
//! ```
//!
//! Repetitions may be mirrored: the backward pass frees the blocks of the last layer first. The first and the last
//! repetitions of a range may differ from the others.

mod body;
mod body_law;
mod count_law;
mod find;
mod insertions;
mod op_sequence;
mod regions;
mod repeated;
mod side;

pub(super) use self::op_sequence::FreedBlock;
pub use self::repeated::RepeatedOperations;
pub(super) use self::repeated::{PlacedKind, PlacedOp, Repetitions};

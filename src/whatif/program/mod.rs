//! What would have to change in a program, told from one recording of it.
//!
//! Each row is a change to the program's calls, which are then made to the allocator under the recorded settings on the
//! device of the recording. A row is there only where its premise is seen in the recording, and what it comes to is
//! what that replay came to, nothing else. [`Sure`] says how sure the premise is: that the program, so changed, would
//! make these calls.
//!
//! `Recording` is the calls, as a script, with the phase of each; `rows` has every row, each made by a file of its
//! own that turns the script into another; `replayed` replays them. A recording that ends with a failure is taken to
//! go on for a step, where the step before tells how ([`crate::replay::calls::Prolonged`]).

mod answer;
mod batch;
mod change;
mod checkpoint;
mod gradients;
mod left;
mod lines;
mod modules;
mod optimizer;
mod passes;
mod precision;
mod recompute;
mod recording;
mod replayed;
mod rows;
mod summary;
mod unasked;

pub use self::answer::{ProgramDevice, ProgramReport, ProgramRow, RowFailure};
pub use self::change::{ProgramChange, Sure};
pub use self::rows::program;
pub(crate) use self::unasked::best_changes;

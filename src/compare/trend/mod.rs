//! Growth over weeks: which source line creeps, in the results of many runs of one job.
//!
//! In: lines of `analyze --format jsonl`. Out: a [`TrendReport`]. A change at one run is a step, not a creep.

mod history;
mod report;
mod shape;

pub use self::history::{History, RunError};
pub use self::report::{TrendKind, TrendReport, TrendRow, find_trends};

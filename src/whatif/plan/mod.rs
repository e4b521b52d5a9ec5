//! The largest size of a program that fits each of several GPUs, as it is and with changes.
//!
//! In: recordings of one program at two or more sizes, a list of GPUs, and the runs that were made on them
//! ([`PlanRun`]). Out: a [`PlanReport`] with a row for each GPU and a [`PlanCell`] for each [`PlanChange`]. A cell is a
//! prediction by replay ([`mod@super::fit`], [`mod@super::program`]) until a run on that GPU confirms it. A run also
//! corrects the prediction: kernels of another GPU request other workspaces, so the difference between the predicted
//! and the measured peak counts for the sizes beside it. Runs nothing itself: [`PlanReport::next_run`] names the run
//! that would confirm most.

mod cell;
mod report;

pub use self::cell::{PlanCell, PlanChange, PlanRun};
pub use self::report::{NextRun, PlanGpu, PlanOptions, PlanReport, plan};

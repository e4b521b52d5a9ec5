//! Several processes on one GPU: a trainer and a rollout engine, or two services.
//!
//! In: a recording of each process, and a list of GPUs. Out: a [`TogetherReport`] that says for each GPU whether the
//! processes fit whatever their timing (their peaks add up to less), as timed in the recordings (one replay of all of
//! them on one device), or if each is limited to a fraction of it. Knows no sizes but the recorded ones.

mod report;
mod timed_run;

pub use self::report::{Clocks, TogetherGpu, TogetherInput, TogetherProcess, TogetherReport, fit_together};
pub use self::timed_run::{TimedFailure, TimedRun};

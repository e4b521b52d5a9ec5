//! Explains failed requests: the reason, the blocks that block free memory, and the settings that avoid the failure.
//!
//! In: a device's study, whose replay calls the `FailureCollector`. Out: an [`OomReport`] per failed request, and a
//! [`RequestReport`] for a request that is only tried. The verdict is that of [`crate::allocator::verdict`].

mod blockers;
mod failed;
mod gathered;
mod judged;
mod oom;
mod remedies;
mod request;

pub use blockers::Blocker;
pub(crate) use gathered::FailureCollector;
pub use gathered::failures;
pub use judged::{CauseNote, DeadEnd, Filling, Growth, NextStep, Outlook, Served, VerdictReason};
pub use oom::{Cause, JudgedRequest, OomReport, SourceExcerpt};
pub use remedies::{RecordedReplay, Remedy};
pub(crate) use request::request;
pub use request::{Assumption, RequestOutcome, RequestReport};

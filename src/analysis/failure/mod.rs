//! Explains failed requests: the reason, the blocks that block free memory, and the settings that avoid the failure.
//!
//! In: a device's study, whose replay calls the `FailureCollector`. Out: an [`OomReport`] per failed request, and a
//! [`RequestReport`] for a request that is only tried. The verdict is that of [`crate::allocator::verdict`].

mod blockers;
mod failed;
mod gathered;
mod judged;
mod judged_request;
mod oom;
mod outlook;
mod reason;
mod remedies;
mod request;
mod source_excerpt;

pub use blockers::Blocker;
pub(crate) use gathered::FailureCollector;
pub use gathered::failures;
pub use judged_request::{Cause, JudgedRequest};
pub use oom::OomReport;
pub use outlook::{Filling, Growth, NextStep, Outlook};
pub use reason::{CauseNote, DeadEnd, Served, VerdictReason};
pub use remedies::{RecordedReplay, Remedy};
pub(crate) use request::request;
pub use request::{Assumption, RequestOutcome, RequestReport};
pub use source_excerpt::SourceExcerpt;

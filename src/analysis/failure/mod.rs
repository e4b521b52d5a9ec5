//! Failed requests: why each failed, what was in the way, which settings would have served it; and one more
//! request, for the asking.
//!
//! A request is kept as facts when a replay passes it (`failed`); its report is made once, when what other
//! settings come to (`remedies`) and where the memory was are known. The verdict is that of
//! [`crate::allocator::verdict`]; here it is put into a sentence (`reason`).

mod blockers;
mod failed;
mod gathered;
mod judged;
mod oom;
mod outlook;
mod reason;
mod remedies;
mod request;

pub use blockers::Blocker;
pub(crate) use gathered::Failures;
pub use gathered::failures;
pub use oom::OomReport;
pub use outlook::{Filling, Growth, NextStep};
pub use remedies::{GoesOn, Remedy, Undisturbed};
pub(crate) use request::request;
pub use request::{RequestReport, Served};

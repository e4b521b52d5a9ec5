//! Answers, as plain serializable structs: their fields are the keys of the JSON.
//!
//! [`analyze`] looks at one snapshot, [`compare_ranks`] puts several side by side: their numbers come from a
//! study of it. The model of the allocator is asked for the remedies of a failed request and for one more
//! request. This room knows no terminal, no colour and no file: renderers lay these structs out, and compute
//! nothing more.

mod blockers;
mod device;
mod failed;
mod failures;
mod lines;
mod oom;
mod ranks;
mod reason;
mod remedies;
mod request;
mod snapshot;

pub use crate::facts::Bucket;
pub use crate::notice::Warning;
pub use blockers::Blocker;
pub use device::{DeviceReport, failures, remark_on_trace};
pub use lines::{Contribution, LineShare, lines};
pub use oom::OomReport;
pub use ranks::{Rank, Ranks, compare_ranks};
pub use remedies::{Remedy, Undisturbed};
pub use request::{RequestReport, Served};
pub use snapshot::{
    AnalyzeReport, HostReport, Options, SnapshotReport, Unreadable, analyze, analyze_study,
    remark_on_file,
};

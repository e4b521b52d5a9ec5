//! Answers, as plain serializable structs: their fields are the keys of the JSON.
//!
//! [`analyze`] looks at one snapshot, [`AnalyzeReport::new`] puts several side by side: their numbers come from a
//! study of it. This room knows no terminal, no colour and no file: renderers lay these structs out, and compute
//! nothing more.

mod advice;
mod analyzed;
mod brief;
mod device;
mod dry_range;
mod dry_run;
pub mod failure;
mod lines;
mod names;
mod options;
mod ranks;
mod snapshot;
mod summary;

pub use crate::base::warning::Warning;
pub use crate::replay::literal::Bucket;
pub use analyzed::{AnalyzeReport, Unreadable};
pub use brief::{Brief, BriefLine};
pub use device::DeviceReport;
pub use dry_range::{RangeReport, Span, WorkspacesReport};
pub use dry_run::{Certainty, DryRunReport, ReadReport};
pub use lines::{Contribution, LineShare, lines};
pub use options::Options;
pub use ranks::{Alike, Rank, Ranks};
pub use snapshot::{HostReport, SnapshotReport, analyze, analyze_study, remark_on_file, remarks};

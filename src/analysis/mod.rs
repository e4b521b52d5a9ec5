//! Answers about one or several snapshots, as serializable structs.
//!
//! In: a [study](crate::study::Study) of each snapshot and [`Options`]. Out: [`AnalyzeReport`], whose fields are the
//! keys of the JSON. This room knows no terminal, no colour and no file.

mod advice;
mod analyzed;
mod cures;
mod device;
mod dry_failures;
mod dry_range;
mod dry_reads;
mod dry_run;
mod dry_verdict;
pub mod failure;
mod in_parts;
mod jobs;
mod last_failure;
mod latest;
mod local_tensors;
mod names;
mod peers;
mod rank_row;
mod ranks;
mod running_calls;
mod snapshot;
mod statements;
mod step_requests;
pub mod timeline;
mod trials;

pub use crate::base::warning::Warning;
pub use crate::python::RunningValue;
pub use crate::replay::literal::Bucket;
pub use advice::{Advice, NoSettingHelps, OversizedRequest};
pub use analyzed::{AnalyzeReport, JobVerdict, Unreadable};
pub use cures::{Cure, CureHolder, CureKind, CureRow, Fact};
pub use device::{DeviceReport, ExpandableGain, IdleCache, Options};
pub use dry_range::{RangeReport, WorkspacesReport};
pub use dry_reads::ReadReport;
pub use dry_run::{DryRunCertainty, DryRunReport, DryRunWarning};
pub use dry_verdict::{
    DryRunReason, DryRunVerdict, FailedRequest, ProgramEnd, ProgramError, ReadBefore, Retry, SharedDevice,
};
pub use in_parts::ShapeCure;
pub use jobs::{Attempts, OtherJob};
pub(crate) use local_tensors::request_bytes;
pub use local_tensors::{LocalTensorReport, LocalTensors, RequestShape};
pub(crate) use names::{host_in_path, rank_in_path};
#[cfg(feature = "cli")]
pub(crate) use names::{is_requested, without_reason};
pub use peers::{DifferenceKind, RankDifference};
pub use rank_row::RankRow;
pub(crate) use ranks::group;
pub use ranks::{FailureGroup, Ranks};
pub use snapshot::{SnapshotReport, analyze, analyze_study, process_or_contents, warn_about_file, warnings_of};
pub use trials::{
    RefusedSize, ServingPlanReport, ServingPlanRow, SizeRunReport, SizeSearchReport, TrialOutcome, TrialReport,
    TrialsReport,
};

//! Answers, as plain serializable structs: their fields are the keys of the JSON.
//!
//! [`analyze`] looks at one snapshot, [`compare_ranks`] puts several side by side, [`timeline`] follows one
//! over time: their numbers come from the snapshot and its literal replay. The model of the allocator is asked
//! for the remedies of a failed request, for one more request, and by [`verified`], [`what_if`] and
//! [`whatif`]. [`explain`] needs no snapshot, only the words of a log. This room knows no terminal, no
//! colour and no file: renderers lay these structs out, and compute nothing more.

mod blockers;
#[cfg(feature = "cuda")]
mod calibrate;
mod cautions;
mod change;
mod cost;
mod device;
mod emitted;
mod explain;
mod failures;
mod found;
mod grid;
mod held;
mod lines;
#[cfg(feature = "cuda")]
mod live;
mod marks;
mod oom;
mod ranges;
mod ranks;
mod reason;
mod remedies;
mod replay;
mod request;
mod series;
mod smallest;
mod snapshot;
mod timeline;
mod whatif;

pub use crate::facts::Bucket;
pub use crate::notice::Warning;
#[cfg(feature = "cuda")]
pub use calibrate::calibrate;
pub use change::{WhatIf, option_change};
pub use cost::{COST_SCHEMA, Cost, Costs, CostsByCall};
pub use device::{DeviceReport, failures, remark_on_trace};
pub use emitted::{Emitted, Journal, emitted, write_snapshot};
pub use explain::{
    ExplainReport, Failure, Figure, Recording, RefusedMapping, StatisticsReport, explain,
};
pub use held::{
    Age, ByAge, ByCategory, ByFile, ByPhase, ByRange, Category, Confidence, HeldAt, HeldBlock,
    LeakSuspect, Leaks, StepsReport, held_blocks,
};
pub use lines::{Contribution, LineShare, lines};
#[cfg(feature = "cuda")]
pub use live::{
    CallReport, CallTimes, GpuReport, LiveDevice, LiveDifference, LiveError, LiveOptions,
    LiveReport, live,
};
pub use marks::{Mark, MarkKind, Marks};
pub use oom::{Blocker, OomReport, Remedy, Undisturbed};
pub use ranges::{NamedRange, NamedRanges, Span};
pub use ranks::{Rank, Ranks, compare_ranks};
pub use replay::{
    Assumed, DivergenceReport, EntryReport, EventCounts, FailedRequest, ReplayReport,
    ReplayedDevice, verified, what_if,
};
pub use request::{RequestReport, Served};
pub use series::{Buckets, Series, SeriesSet};
pub use snapshot::{
    AnalyzeReport, HostReport, Options, SnapshotReport, Unreadable, analyze, analyze_study,
    remark_on_file,
};
pub use timeline::{DeviceTimeline, TimelineOptions, TimelineReport, timeline};
pub use whatif::{Asked, WhatIfReport, WhatIfRow, whatif};

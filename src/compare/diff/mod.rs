//! What changed from one snapshot to another: totals, settings, pools and the stacks that hold memory.
//!
//! [`diff`] compares two snapshots, [`RanksDiff`] puts those of two directories side by side. Stacks are matched by
//! [`crate::stacks::matching`]. The deltas of a table add up to the total exactly: what is not listed is in a row of
//! its own, and bytes are never lost to a doubtful match, only told under another line. The diff the other
//! way round is the negative. Reads no file, prints nothing.

mod device;
mod figures;
mod holders;
mod limit;
mod lines;
mod moment;
mod options;
mod ranks;
mod report;
mod settings;
mod space;
mod steps;
mod summary;

pub use crate::stacks::matching::MatchedBy;
pub use crate::study::TracePosition;
pub use device::DeviceDiff;
pub use figures::Figures;
pub use holders::{HeldChange, HeldOnBothSides, Others, StackChange, StackCounts, Status};
pub use limit::{ExceededGrowth, FailOn, Growth, GrowthError, GrowthLimit};
pub use lines::LineChange;
pub use options::{At, DiffOptions};
pub use ranks::{RankChange, RanksDiff};
pub use report::{DiffReport, File, SideWarning, diff};
pub use settings::SettingChange;
pub use space::{PoolChange, Space, StreamChange};
pub use steps::{CommonSteps, PhaseChange, StepChange};

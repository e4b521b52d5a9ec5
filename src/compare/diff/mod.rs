//! Compares two snapshots: totals, settings, pools, and the stacks that hold memory.
//!
//! In: two snapshots. Out: [`DiffReport`]. Stacks are
//! matched by [`crate::stacks::matching`]. The deltas of a table add up exactly to the total: rows that are not listed
//! are summed up in a row of their own. A doubtful match may put bytes under another line, but never loses them. The
//! reverse diff is the negative. This room reads no file and prints nothing.

mod device;
mod holders;
mod lines;
mod report;
mod steps;

pub use crate::stacks::matching::MatchedBy;
pub use crate::study::TracePosition;
pub use device::{DeviceDiff, Figures};
pub use holders::{LiveChange, OtherRows, StackChange, Status, VariableChange, VariablesDiff};
pub use lines::LineChange;
pub use report::{DiffReport, File, SettingChange, SideWarning, diff};
pub use steps::{CommonSteps, ComparedMoment, DiffOptions, PeakChange};

//! Checks snapshots against limits.
//!
//! In: snapshots, limits (flags, and the rules of `oomscope.toml`) and an optional baseline. Out: findings, each of one
//! limit and one [`crate::study::figures::Figure`]. Growth over a baseline compares replays from an empty pool, so
//! that earlier allocations cannot change a verdict. This room reads no file and prints nothing.

mod changes;
mod entries;
mod finding;
mod judge;
mod limits;
mod measure;
mod measured;
mod unknown;
mod verdict;

pub use changes::{BaselineComparison, DeviceChange, LineDelta};
pub use entries::{BaselineEntries, BaselineEntry, DeviceTotals, MeasuredDevice, MeasuredLine};
pub use finding::{AllowMissing, CodeLine, FileWarning, Finding, Objection, ObjectionCode, Severity, words_to_allow};
pub use judge::{Gate, JudgedSnapshot, NamedEntry, judge};
pub use limits::{Limit, LimitRule, LimitRules, Limits};
pub use verdict::{CheckReport, CheckedJob, RankCount, RepeatedRank, objections, repeated_rank};

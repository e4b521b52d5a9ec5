//! Whether snapshots keep to limits: limits, baselines, findings.
//!
//! A limit is a flag or a key of `oomscope.toml`; a finding holds one limit against one
//! [`crate::study::figures::Figure`]. Growth over a baseline compares replays that start with an empty pool, so that what
//! ran before cannot change a verdict. This room reads no file and prints nothing: it is given the
//! text of a configuration and answers with findings, which `report` lays out.

mod allow_missing;
mod baseline;
mod finding;
mod judge;
mod limits;
mod measured;
mod rules;
mod summary;
mod verdict;

pub use allow_missing::AllowMissing;
pub use baseline::{Baseline, Peaks, peaks};
pub use finding::{CodeLine, Finding, Noted, Severity};
pub use judge::{Gate, Judged, judge};
pub use limits::{Limit, Limits};
pub use rules::{LimitRule, LimitRules};
pub use verdict::{CheckReport, RankCount, Worst};

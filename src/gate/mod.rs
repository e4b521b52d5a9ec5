//! Whether snapshots keep to limits: thresholds, baselines, findings.
//!
//! A limit is a flag or a key of `oomscope.toml`; a finding holds one limit against one figure of
//! [`crate::analysis`]. Growth over a baseline compares replays that start with an empty pool, so that what
//! ran before cannot change a verdict. This room reads no file and prints nothing: it is given the
//! text of a configuration and answers with findings, which `report` lays out.

mod baseline;
mod code;
mod config;
mod figures;
mod finding;
mod judge;
mod limits;
mod verdict;

pub use baseline::{Baseline, Peaks, peaks};
pub use code::{Code, Severity, Unit};
pub use config::{Config, ConfigError, EXAMPLE};
pub use finding::{Finding, Line};
pub use judge::{Gate, Judged, judge};
pub use limits::{Amount, Limits, Threshold};
pub use verdict::{CheckReport, Noted, Worst};

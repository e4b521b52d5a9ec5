//! The report on all snapshots.

use serde::Serialize;

use super::ranks::{Ranks, compare_ranks};
use super::snapshot::SnapshotReport;

/// The JSON of `oomscope analyze`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct AnalyzeReport {
    /// One report per snapshot that could be read, in the order given.
    pub snapshots: Vec<SnapshotReport>,
    /// Number of rows in tables of ranks and devices on a page.
    #[serde(skip)]
    pub top: usize,
    /// All devices side by side; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Ranks>,
    /// Files that could not be read; absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

impl AnalyzeReport {
    /// Compares the devices of `snapshots` and summarizes them; `top` is the number of rows in tables.
    pub fn new(snapshots: Vec<SnapshotReport>, unreadable: Vec<Unreadable>, top: usize) -> Self {
        let ranks = compare_ranks(&snapshots);
        Self { snapshots, top, ranks, unreadable }
    }
}

/// A file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Path as given on the command line.
    pub path: String,
    /// The error message.
    pub message: String,
}

//! Everything about all snapshots.

use serde::Serialize;

use super::ranks::{Ranks, compare_ranks};
use super::snapshot::SnapshotReport;
use super::summary;
use crate::base::summary::Summary;

/// The JSON of `oomscope analyze`.
#[derive(Debug, Serialize)]
pub struct AnalyzeReport {
    /// `oomscope/analyze/1`
    pub schema: &'static str,
    /// What they come to.
    pub summary: Summary,
    /// In the order in which they were given.
    pub snapshots: Vec<SnapshotReport>,
    /// Rows that tables of ranks and devices have on a page.
    #[serde(skip)]
    pub top: usize,
    /// All devices side by side, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Ranks>,
    /// Files that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

impl AnalyzeReport {
    /// Of `snapshots`, with tables of `top` rows.
    pub fn new(snapshots: Vec<SnapshotReport>, unreadable: Vec<Unreadable>, top: usize) -> Self {
        let ranks = compare_ranks(&snapshots);
        let summary = summary::of_all(&snapshots, ranks.as_ref());
        Self { schema: "oomscope/analyze/1", summary, snapshots, top, ranks, unreadable }
    }
}

/// A file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// As given.
    pub path: String,
    /// Why.
    pub message: String,
}

//! Options of an analysis.

use crate::study::attribution::CategoryRule;
use crate::study::{PositionSelector, Scope};

/// Selects what to analyze, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// The part of a snapshot to analyze.
    pub scope: Scope,
    /// Maximum number of stacks and lines in a list.
    pub top: usize,
    /// The position whose memory is shown; by default the snapshot.
    pub at: Option<PositionSelector>,
    /// Size of a request to try, in bytes.
    pub request: Option<u64>,
    /// Custom categories, in addition to the built-in ones.
    pub rules: &'a [CategoryRule],
}

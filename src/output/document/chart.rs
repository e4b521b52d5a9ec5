//! Memory over the entries of a trace. The renderers choose how many columns to draw.

/// Allocated and reserved memory over one axis, which is divided into buckets of entries, and what happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    /// Number of entries in all buckets.
    pub entries: u64,
    /// Index of the first entry in the trace.
    pub first: u64,
    /// First entry of each bucket, relative to `first`.
    pub starts: Vec<u64>,
    /// Start of each bucket, in microseconds since the first entry; empty if not recorded.
    pub times_us: Vec<u64>,
    /// The maximum of each bucket.
    pub allocated: Vec<u64>,
    /// The same of reserved memory.
    pub reserved: Vec<u64>,
    /// Bytes in rows of one line, each on its own scale: the maximum of each bucket.
    pub levels: Vec<(&'static str, Vec<u64>)>,
    /// Rows of consecutive ranges with names. If there are too many for the width, the row is left out.
    pub bands: Vec<(&'static str, Vec<Band>)>,
    /// The same with numbers, which are thinned out.
    pub steps: Vec<Band>,
    /// The requests that failed.
    pub failed: Failures,
}

/// Failed requests of a [`Chart`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Failures {
    /// Half-open ranges of entries, drawn as marks.
    pub ranges: Vec<[u64; 2]>,
    /// Labels at entries.
    pub labels: Vec<(u64, String)>,
    /// Text beside the marks.
    pub note: String,
}

/// A named range of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// Half-open, relative to the first entry drawn.
    pub range: [u64; 2],
    pub name: String,
}

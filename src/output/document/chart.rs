//! Series over the entries of a trace. The renderers choose how many columns to draw.

/// 100% in [`Shape::Shares`].
pub(super) const MILLION: f64 = 1e6;

/// Rows over one axis, which is divided into buckets of entries.
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
    pub rows: Vec<ChartRow>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChartRow {
    /// Empty for an area.
    pub name: String,
    pub shape: Shape,
    pub note: RowNote,
}

/// The content of a row. Series have one value per bucket.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Shape {
    /// Two series of bytes, one in front of the other; `names` are those of `back` and `front`.
    Area { back: Vec<u64>, front: Vec<u64>, names: [&'static str; 2] },
    /// The axis: entry indexes, and times if recorded.
    Axis,
    /// The maximum of each bucket, scaled to `max`; 0 is blank.
    Amounts { values: Vec<u64>, max: u64 },
    /// The minimum of each bucket, in millionths.
    Shares(Vec<u64>),
    /// Half-open ranges of entries, drawn as marks.
    Marks(Vec<[u64; 2]>),
    /// Labels at entries.
    Labels(Vec<(u64, String)>),
    /// Consecutive named ranges. If there are too many for the width, numbered bands are thinned out and the row
    /// is left out otherwise.
    Bands { bands: Vec<Band>, is_numbered: bool },
    /// An empty row, for its note.
    Empty,
}

/// A named range of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// Half-open, relative to the first entry drawn.
    pub range: [u64; 2],
    pub name: String,
}

/// Text beside or below a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowNote {
    None,
    Text(String),
    /// The minimum and maximum of the shares drawn.
    MinMax,
}

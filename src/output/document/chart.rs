//! Values over a trace, as they are: how many columns they are drawn in, the renderer says.

/// The whole of [`Shape::Shares`].
pub(super) const MILLION: f64 = 1e6;

/// Rows over one axis, which is cut into buckets of entries.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    /// Entries in all buckets.
    pub entries: u64,
    /// Index of the first of them in the trace.
    pub first: u64,
    /// Where each bucket begins, counted from the first entry that is drawn.
    pub starts: Vec<u64>,
    /// Microseconds from the first entry to where each bucket begins; empty where not recorded.
    pub times_us: Vec<u64>,
    /// From the top down.
    pub rows: Vec<ChartRow>,
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartRow {
    /// What it shows; of an area, nothing.
    pub name: String,
    /// Its values.
    pub shape: Shape,
    /// What is said beside it.
    pub note: RowNote,
}

/// What is drawn; a value belongs to each bucket.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Shape {
    /// Two series of bytes one in front of the other, with the names of what they show; and parts of the one in
    /// front, from the bottom up, for readers to whom colours can tell them apart.
    #[expect(missing_docs, reason = "said above")]
    Area { back: Vec<u64>, front: Vec<u64>, names: [&'static str; 2], layers: Vec<Layer> },
    /// The axis: entries, and time where it was recorded.
    Axis,
    /// A series at its most, on a scale up to its highest value; nothing where it is 0.
    #[expect(missing_docs, reason = "said above")]
    Amounts { values: Vec<u64>, max: u64 },
    /// Millionths of a whole, at their least.
    Shares(Vec<u64>),
    /// Moments, each from one entry up to, not including, another.
    Marks(Vec<[u64; 2]>),
    /// Stretches of time, likewise.
    Ranges(Vec<[u64; 2]>),
    /// What is said of entries.
    Labels(Vec<(u64, String)>),
    /// Stretches with a name each, one after the other. Of those that are numbered some can stand for all; others
    /// are left out where they are too many.
    #[expect(missing_docs, reason = "said above")]
    Bands { stretches: Vec<Band>, is_numbered: bool },
    /// Nothing: only what is said beside it.
    Empty,
}

/// A part of an area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// What it shows.
    pub name: String,
    /// Bytes, of each bucket where the area is highest.
    pub values: Vec<u64>,
}

/// Entries that belong together, from one up to, not including, another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// Their first and the first after them, counted from the first entry that is drawn.
    pub range: [u64; 2],
    /// What they are.
    pub name: String,
}

/// What is said beside a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowNote {
    /// Nothing.
    None,
    /// A few words.
    Text(String),
    /// The least and the greatest share drawn.
    MinMax,
    /// The same in a sentence that this begins, below the row.
    MinMaxSentence(String),
}

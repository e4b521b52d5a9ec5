//! The change of the program that makes a tensor smaller, or none: what the text of the failing line makes, if the sizes of
//! blocks agree.

use super::local_tensors::{LocalTensorReport, REQUEST_GRANULE};
use crate::python::{LargeValue, RunningValue};
use crate::stacks::frames::FrameReport;

/// A change of the program, with the tensors of the failing function; their shapes are empty if they are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeCure {
    /// Give two tensors the same shape: of (N, 1) and (N) an operator makes (N, N).
    SameShape([LocalTensorReport; 2]),
    /// Use fused attention instead of a matrix of scores; query, key and value.
    FusedAttention([String; 3]),
    /// Compute distances without the differences of all pairs.
    Distances([LocalTensorReport; 2]),
    /// Multiply rows by a vector instead of by its diagonal matrix.
    Diagonal(String),
    /// Compute all pairs of rows of two tensors in parts.
    Parts([LocalTensorReport; 2]),
    /// Find the largest elements without sorting all.
    Largest(String),
    /// Broadcast a tensor instead of repeating it.
    Broadcast(String),
    /// Keep zeros and ones in one byte each.
    Narrow(String),
    /// Keep the elements of a square matrix that are not zero; its length.
    Sparse(String),
    /// Compute a call without gradients in parts.
    Call(Box<CallInParts>),
    /// Give a call of `vmap` a chunk size.
    Chunks(FrameReport),
}

/// A call of which a part would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInParts {
    /// Its line.
    pub at: FrameReport,
    /// The value that it computes; `None` if its text is not known.
    pub value: Option<RunningValue>,
}

impl ShapeCure {
    /// The change is at a line of its own, not at that of the request.
    pub fn has_line(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Chunks(_))
    }
}

/// The failed request beside the live blocks.
pub(super) struct Sizes<'b> {
    pub(super) requested_bytes: u64,
    /// The blocks that the running function has made.
    pub(super) own: &'b [u64],
    /// All blocks of the recording.
    pub(super) all: &'b [u64],
}

/// Tensors with fewer rows have no large table of pairs.
const MIN_ROWS: u64 = 1024;
/// Smaller blocks divide too many requests.
const MIN_SOURCE_BYTES: u64 = 1 << 16;

impl Sizes<'_> {
    /// Whether the request is for all pairs of the elements of a block.
    fn is_square(&self) -> bool {
        let is_bytes =
            |bytes: u64, known: u64| known == bytes || bytes.checked_next_multiple_of(REQUEST_GRANULE) == Some(known);
        [4_u64, 2, 8].into_iter().any(|element| {
            let rows = (self.requested_bytes / element).isqrt();
            let has_side = || self.all.iter().any(|bytes| is_bytes(rows * element, *bytes));
            rows >= MIN_ROWS && is_bytes(rows * rows * element, self.requested_bytes) && has_side()
        })
    }

    /// Whether the request is `times` as large as a block.
    fn has_source(&self, times: impl Fn(u64) -> bool) -> bool {
        let is_it = |bytes: &u64| self.requested_bytes.is_multiple_of(*bytes) && times(self.requested_bytes / bytes);
        self.all.iter().filter(|bytes| **bytes >= MIN_SOURCE_BYTES).any(is_it)
    }

    /// Whether the request is larger than all that the function has made, but for blocks of its size.
    fn is_largest(&self) -> bool {
        let mut inputs = self.own.iter().filter(|bytes| **bytes != self.requested_bytes).peekable();
        inputs.peek().is_some() && inputs.all(|bytes| *bytes <= self.requested_bytes / 2)
    }
}

/// The change that `value` suggests; `tensor` looks a variable up.
pub(super) fn shape_cure(
    value: LargeValue,
    sizes: &Sizes<'_>,
    tensor: impl Fn(String) -> LocalTensorReport,
) -> Option<ShapeCure> {
    let (is_it, cure) = match value {
        LargeValue::Scores(names) => (sizes.is_largest(), ShapeCure::FusedAttention(names)),
        LargeValue::Distances(names) => (true, ShapeCure::Distances(names.map(tensor))),
        LargeValue::Pairs(names) => (true, ShapeCure::Parts(names.map(tensor))),
        LargeValue::Elements(names) => (sizes.is_square(), ShapeCure::SameShape(names.map(tensor))),
        // Values, or indices in int64.
        LargeValue::Sorted(name) => (sizes.has_source(|times| matches!(times, 1 | 2 | 4)), ShapeCure::Largest(name)),
        LargeValue::Repeated(name) => (sizes.has_source(|times| times > 1), ShapeCure::Broadcast(name)),
        LargeValue::OneHot(name) => (true, ShapeCure::Narrow(name)),
        LargeValue::Diagonal(name) => (sizes.is_square(), ShapeCure::Diagonal(name)),
        LargeValue::Zeros(length) => (true, ShapeCure::Sparse(length)),
    };
    is_it.then_some(cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cure(value: LargeValue, requested_bytes: u64, blocks: &[u64]) -> Option<ShapeCure> {
        let tensor = |name| LocalTensorReport { name, dtype: String::new(), shape: Vec::new() };
        shape_cure(value, &Sizes { requested_bytes, own: blocks, all: blocks }, tensor)
    }

    #[test]
    fn all_pairs_have_the_square_of_the_elements_of_a_block() {
        let names = || LargeValue::Elements(["prediction".to_owned(), "target".to_owned()]);
        let Some(ShapeCure::SameShape([column, row])) = cure(names(), 1_600_000_000, &[80_000]) else { panic!() };
        assert_eq!((column.name, row.name), ("prediction".into(), "target".into()));
        // In blocks of 512 bytes.
        assert!(cure(names(), 1_600_000_000, &[80_384]).is_some());
        assert_eq!(cure(names(), 1_600_000_000, &[40_000]), None);
        assert_eq!(cure(names(), 80_000, &[80_000]), None);
        assert_eq!(cure(names(), (MIN_ROWS - 1) * (MIN_ROWS - 1) * 4, &[(MIN_ROWS - 1) * 4]), None);
        assert_eq!(cure(names(), u64::MAX, &[u64::MAX]), None);
        let diagonal = cure(LargeValue::Diagonal("weights".to_owned()), 3_600_000_000, &[120_000]);
        assert_eq!(diagonal, Some(ShapeCure::Diagonal("weights".to_owned())));
    }

    #[test]
    fn copies_are_several_times_as_large_as_a_block() {
        let repeated = |bytes, blocks: &[u64]| cure(LargeValue::Repeated("history".to_owned()), bytes, blocks);
        assert_eq!(repeated(500 << 20, &[1 << 20]), Some(ShapeCure::Broadcast("history".to_owned())));
        assert_eq!(repeated(1 << 20, &[1 << 20]), None);
        assert_eq!(repeated(500 << 20, &[1 << 10]), None);
        let sorted = |bytes| cure(LargeValue::Sorted("scores".to_owned()), bytes, &[1 << 20]).is_some();
        assert_eq!([1 << 20, 2 << 20, 3 << 20].map(sorted), [true, true, false]);
    }

    #[test]
    fn scores_are_larger_than_queries_and_keys() {
        let names = || LargeValue::Scores(["q", "k", "v"].map(str::to_owned));
        assert!(cure(names(), 400 << 20, &[36 << 20, 400 << 20]).is_some());
        assert!(cure(names(), 400 << 20, &[200 << 20]).is_some());
        assert_eq!(cure(names(), 400 << 20, &[201 << 20]), None);
        // One new query.
        assert_eq!(cure(names(), 1 << 20, &[36 << 20]), None);
        assert_eq!(cure(names(), 1 << 20, &[1 << 20]), None);
    }
}

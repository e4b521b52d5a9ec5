//! The shape of a reduction, from the bytes of its input and its output.

use super::reduction::{LaunchConditions, LoopDimension, ReductionKernel, Scratch, scratch};

/// How a reduction reads its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Over the first dimension of `[reduced, outputs]`, such as the gradient of a bias.
    Columns,
    /// Over the last dimension of `[outputs, reduced]`.
    Rows,
    /// Over the first and the last dimension of `[images, outputs, pixels]`, such as the gradient of a bias of a
    /// convolution.
    Images,
}

/// A reduction whose counts follow from bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReductionShape {
    layout: Layout,
    item_bytes: u64,
    output_item_bytes: u64,
    kernel: ReductionKernel,
}

/// Bytes of an element of the input, of an element of the output and of a partial result, and the elements loaded at
/// once, the most frequent first: sums, means and norms in float32; in half precision; from half precision to float32;
/// maxima in half precision; indexes of a maximum; variances; `any`.
const OPERATORS: [(u64, u64, u64, u64); 10] = [
    (4, 4, 4, 4),
    (2, 2, 4, 4),
    (2, 4, 4, 4),
    (2, 2, 2, 4),
    (4, 8, 16, 4),
    (2, 8, 16, 4),
    (4, 4, 16, 2),
    (2, 2, 16, 2),
    (4, 1, 1, 4),
    (1, 1, 1, 4),
];

/// Offsets in bytes have 32 bits (`can_use_32bit_indexing`).
const MAX_INDEXED_BYTES: u64 = i32::MAX as u64;

impl ReductionShape {
    /// A sum over the first dimension, in which input and output have elements of `item_bytes`.
    pub(super) fn column_sum(item_bytes: u64) -> Self {
        let kernel = ReductionKernel { accumulator_bytes: 4, vector: 4 };
        Self { layout: Layout::Columns, item_bytes, output_item_bytes: item_bytes, kernel }
    }

    /// All known shapes, the most frequent first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Layout::Columns, Layout::Images, Layout::Rows].into_iter().flat_map(|layout| {
            OPERATORS.into_iter().map(move |(item_bytes, output_item_bytes, accumulator_bytes, vector)| Self {
                layout,
                item_bytes,
                output_item_bytes,
                kernel: ReductionKernel { accumulator_bytes, vector },
            })
        })
    }

    /// The buffers of the reduction of a tensor of `input_bytes` to one of `output_bytes`; `None` if it takes a single
    /// stage, or these are not its bytes.
    pub(super) fn scratch(self, input_bytes: u64, output_bytes: u64, conditions: LaunchConditions) -> Option<Scratch> {
        scratch(&self.dimensions(input_bytes, output_bytes)?, self.kernel, conditions)
    }

    /// Whether the reduction of a tensor of `input_bytes` to one of `output_bytes` has these buffers.
    pub(super) fn has_scratch(
        self,
        input_bytes: u64,
        output_bytes: u64,
        conditions: LaunchConditions,
        recorded: Option<Scratch>,
    ) -> bool {
        let dimensions = self.dimensions(input_bytes, output_bytes);
        dimensions.is_some_and(|dimensions| scratch(&dimensions, self.kernel, conditions) == recorded)
    }

    /// The dimensions of the loop; `None` if a tensor of these bytes has no such shape.
    fn dimensions(self, input_bytes: u64, output_bytes: u64) -> Option<Vec<LoopDimension>> {
        let outputs = divide(output_bytes, self.output_item_bytes)?;
        let reduced = divide(input_bytes, outputs.checked_mul(self.item_bytes)?)?;
        if reduced < 2 {
            return None;
        }
        // A tensor of 2 GiB or more is halved until offsets in it fit 32 bits, and each part is reduced by itself.
        let halvings = (input_bytes / MAX_INDEXED_BYTES).checked_ilog2().map_or(0, |log| log + 1);
        let (reduced, outputs) = match self.layout {
            Layout::Rows if outputs > 1 => (reduced, (outputs >> halvings).max(1)),
            _ => ((reduced >> halvings).max(2), outputs),
        };
        let kept = |stride: u64| LoopDimension { size: outputs, stride, output_stride: 1 };
        let summed = |size: u64, stride: u64| LoopDimension { size, stride, output_stride: 0 };
        // The loop has no dimension of size 1. The number of images does not matter, if there is more than one.
        Some(match self.layout {
            Layout::Rows | Layout::Columns if outputs == 1 => vec![summed(reduced, 1)],
            Layout::Columns => vec![summed(reduced, outputs), kept(1)],
            Layout::Rows => vec![summed(reduced, 1), kept(reduced)],
            Layout::Images => vec![summed(reduced, 1), summed(1, reduced), kept(reduced)],
        })
    }
}

/// The quotient, if it is whole and not 0.
fn divide(bytes: u64, by: u64) -> Option<u64> {
    (by > 0 && bytes > 0 && bytes.is_multiple_of(by)).then(|| bytes / by)
}

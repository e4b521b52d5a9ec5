//! How much memory a reduction requests beside its output.
//!
//! A sum, a mean, a norm or an argmax on a GPU takes one stage if its thread blocks can each finish some outputs. If
//! there are too few outputs to occupy the device, several blocks share one: each writes a partial result, and the last
//! one to finish, found by a counter (a semaphore), combines them. Both buffers are allocated right after the output
//! and freed when the call ends. Whether that happens depends on the shape and the GPU alone, so there is a threshold
//! that smaller recordings do not show: summing the 5,000 columns of a float32 tensor on an H100 takes no buffer up to
//! 1,020 rows and 39 MiB from 1,021 on.
//!
//! The rule is that of `setReduceConfig` in PyTorch's `aten/src/ATen/native/cuda/Reduce.cuh`, from which the constants
//! come. `tests/oracle/reductions.py` records real cases; the test below has some of them.

use crate::allocator::device::GpuModel;

/// A dimension of the loop over the input, whose strides count elements. Reduced dimensions come first and have no
/// stride in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoopDimension {
    pub(super) size: u64,
    pub(super) stride: u64,
    pub(super) output_stride: u64,
}

impl LoopDimension {
    fn kept(size: u64, stride: u64) -> Self {
        Self { size, stride, output_stride: 1 }
    }

    fn summed(size: u64, stride: u64) -> Self {
        Self { size, stride, output_stride: 0 }
    }
}

/// The properties of the GPU that a launch depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaunchConditions {
    pub(super) multiprocessors: u64,
    /// Threads of a multiprocessor.
    pub(super) threads: u64,
}

impl LaunchConditions {
    pub(super) fn new(gpu: &GpuModel) -> Self {
        Self { multiprocessors: gpu.multiprocessors.into(), threads: gpu.threads_per_multiprocessor.into() }
    }
}

/// Bytes of the two buffers of a reduction in two stages: partial results and semaphores.
pub(super) type Scratch = [u64; 2];

/// Threads of a block (`MAX_NUM_THREADS`); with a vector of outputs, that many fewer.
const MAX_THREADS: u64 = 512;
const WARP: u64 = 32;
/// Outputs that a thread computes at once, if they are contiguous.
const OUTPUT_VECTOR: u64 = 4;
/// Elements that a thread adds up before its block is split further, at least and at most.
const VALUES_PER_THREAD: [u64; 2] = [16, 256];

/// The buffers of a reduction, whose partial results take `accumulator_bytes` each; `None` if it takes a single stage.
pub(super) fn scratch(
    dimensions: &[LoopDimension],
    accumulator_bytes: u64,
    conditions: LaunchConditions,
) -> Option<Scratch> {
    let (mut reduced, mut outputs) = (1u64, 1u64);
    for dimension in dimensions {
        let product = if dimension.output_stride == 0 { &mut reduced } else { &mut outputs };
        *product = product.checked_mul(dimension.size)?;
    }
    if reduced == 0 || outputs == 0 {
        return None;
    }
    let first_kept = dimensions.iter().position(|dimension| dimension.output_stride != 0);
    let along_rows = first_kept.is_none_or(|kept| dimensions[0].stride < dimensions[kept].stride);
    let fastest = if along_rows { 0 } else { first_kept.unwrap_or(0) };
    let (mut width, height) = if along_rows { (reduced, outputs) } else { (outputs, reduced) };
    let mut output_vector = 1;
    // Rows are loaded in vectors, too, but those that two stages reduce are wider than a block even so.
    if !along_rows && dimensions[fastest].stride == 1 {
        let others = dimensions.iter().enumerate().filter(|(index, _)| *index != fastest);
        let divided = others.map(|(_, dimension)| dimension.stride).chain([dimensions[fastest].size]);
        output_vector = divided.fold(OUTPUT_VECTOR, |vector, number| {
            [4, 2, 1].into_iter().find(|candidate| *candidate <= vector && number % candidate == 0).unwrap_or(1)
        });
        width /= output_vector;
    }
    // A block is a power of two in each direction, a warp wide if it can be.
    let max_threads = MAX_THREADS / output_vector;
    let [wide, high] = [width, height].map(|size| 1 << size.clamp(1, max_threads).ilog2());
    let block_height = high.min(max_threads / wide.min(WARP));
    let block_width = wide.min(max_threads / block_height);
    let [min_values, max_values] = VALUES_PER_THREAD;
    let (mut input_step, mut output_step) = if along_rows { (block_width, 1) } else { (1, block_width) };
    let is_split = reduced.div_ceil(input_step) >= (block_height * min_values).min(max_values);
    *if is_split { &mut input_step } else { &mut output_step } *= block_height;
    let grid = (outputs / output_vector).div_ceil(output_step);
    let values = reduced.div_ceil(input_step);
    let resident_blocks = conditions.multiprocessors * (conditions.threads / (block_width * block_height));
    if !is_split || values < max_values || grid > resident_blocks || grid == 0 {
        return None;
    }
    let wanted_blocks = resident_blocks.div_ceil(grid).max(values.div_ceil(max_values));
    let blocks_per_output = wanted_blocks.min(values.div_ceil(min_values));
    let lanes = if along_rows { 1 } else { block_width * output_vector };
    let partial_results = outputs.saturating_mul(blocks_per_output.saturating_mul(lanes));
    (blocks_per_output > 1).then(|| [accumulator_bytes.saturating_mul(partial_results), 4 * grid])
}

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
    accumulator_bytes: u64,
}

/// Bytes of an element of the input, of an element of the output and of a partial result, the most frequent first: sums,
/// means and norms in float32; in half precision; from half precision to float32; maxima in half precision; indexes of a
/// maximum; variances; `any`.
const OPERATORS: [(u64, u64, u64); 10] =
    [(4, 4, 4), (2, 2, 4), (2, 4, 4), (2, 2, 2), (4, 8, 16), (2, 8, 16), (4, 4, 16), (2, 2, 16), (4, 1, 1), (1, 1, 1)];

/// Offsets in bytes have 32 bits (`can_use_32bit_indexing`).
const MAX_INDEXED_BYTES: u64 = i32::MAX as u64;

impl ReductionShape {
    /// All known shapes, the most frequent first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Layout::Columns, Layout::Images, Layout::Rows].into_iter().flat_map(|layout| {
            OPERATORS.into_iter().map(move |(item_bytes, output_item_bytes, accumulator_bytes)| Self {
                layout,
                item_bytes,
                output_item_bytes,
                accumulator_bytes,
            })
        })
    }

    /// The buffers of the reduction of a tensor to another, by the `bytes` of both; `None` if it takes a single stage, or
    /// these are not its bytes.
    pub(super) fn scratch(self, bytes: [u64; 2], conditions: LaunchConditions) -> Option<Scratch> {
        scratch(&self.dimensions(bytes)?, self.accumulator_bytes, conditions)
    }

    /// Whether such a reduction exists and has these buffers.
    pub(super) fn has_scratch(self, bytes: [u64; 2], conditions: LaunchConditions, recorded: Option<Scratch>) -> bool {
        let dimensions = self.dimensions(bytes);
        dimensions.is_some_and(|dimensions| scratch(&dimensions, self.accumulator_bytes, conditions) == recorded)
    }

    /// The dimensions of the loop; `None` if a tensor of these bytes has no such shape.
    fn dimensions(self, [input_bytes, output_bytes]: [u64; 2]) -> Option<Vec<LoopDimension>> {
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
        // The loop has no dimension of size 1. The number of images does not matter, if there is more than one.
        let by_rows = [LoopDimension::summed(reduced, 1), LoopDimension::kept(outputs, reduced)];
        Some(match self.layout {
            Layout::Rows | Layout::Columns if outputs == 1 => by_rows[..1].to_vec(),
            Layout::Columns => vec![LoopDimension::summed(reduced, outputs), LoopDimension::kept(outputs, 1)],
            Layout::Rows => by_rows.to_vec(),
            Layout::Images => vec![by_rows[0], LoopDimension::summed(1, reduced), by_rows[1]],
        })
    }
}

/// The quotient, if it is whole and not 0.
fn divide(bytes: u64, by: u64) -> Option<u64> {
    (by > 0 && bytes > 0 && bytes.is_multiple_of(by)).then(|| bytes / by)
}

#[cfg(test)]
mod tests {
    use super::*;

    const H100: LaunchConditions = LaunchConditions { multiprocessors: 132, threads: 2048 };
    const FLOAT32: u64 = 4;

    fn columns(rows: u64, columns: u64) -> [LoopDimension; 2] {
        [LoopDimension::summed(rows, columns), LoopDimension::kept(columns, 1)]
    }

    fn number(text: &str) -> u64 {
        text.parse().unwrap()
    }

    /// The size, the stride and the output stride of each dimension of a float32 tensor with `outputs` results.
    fn dimensions_of(layout: Layout, input_bytes: u64, outputs: u64) -> Option<Vec<(u64, u64, u64)>> {
        let shape = ReductionShape { layout, item_bytes: 4, output_item_bytes: 4, accumulator_bytes: FLOAT32 };
        let dimensions = shape.dimensions([input_bytes, outputs * 4])?;
        Some(dimensions.into_iter().map(|of| (of.size, of.stride, of.output_stride)).collect())
    }

    /// Recorded from PyTorch's own kernels on three GPUs, in float32, bfloat16 and float16.
    #[test]
    fn requests_are_those_of_pytorch() {
        let text = include_str!("../../../fixtures/reductions/2.15.0.tsv");
        let (mut with_scratch, mut without) = (0, 0);
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let dimensions = fields[5].split(' ').map(|text| {
                let numbers: Vec<u64> = text.split(':').map(number).collect();
                LoopDimension { size: numbers[0], stride: numbers[1], output_stride: numbers[2] }
            });
            let conditions = LaunchConditions { multiprocessors: number(fields[0]), threads: number(fields[1]) };
            let found = scratch(&dimensions.collect::<Vec<_>>(), number(fields[3]), conditions);
            assert_eq!(found.unwrap_or_default(), [number(fields[6]), number(fields[7])], "{line}");
            *if found.is_some() { &mut with_scratch } else { &mut without } += 1;
        }
        assert!(with_scratch > 200 && without > 200, "{with_scratch} with, {without} without");
    }

    #[test]
    fn a_sum_of_5000_columns_begins_to_take_two_stages() {
        assert_eq!(scratch(&columns(1020, 5000), FLOAT32, H100), None);
        let taken = scratch(&columns(1021, 5000), FLOAT32, H100).unwrap();
        assert!(taken[0] > 39 << 20, "{taken:?}");
    }

    proptest::proptest! {
        #[test]
        fn never_overflows(a: u64, b: u64, c in 1u64..1 << 40, threads in 1u64..4096) {
            let conditions = LaunchConditions { threads, ..H100 };
            let _ = scratch(&columns(a, b), FLOAT32, conditions);
            let _ = scratch(&[LoopDimension::summed(c, 1)], FLOAT32, conditions);
        }
    }

    #[test]
    fn loops_have_the_dimensions_of_their_layout() {
        const GIB: u64 = 1 << 30;
        for layout in [Layout::Rows, Layout::Columns] {
            assert_eq!(dimensions_of(layout, 40, 1), Some(vec![(10, 1, 0)]));
        }
        assert_eq!(dimensions_of(Layout::Rows, 240, 6), Some(vec![(10, 1, 0), (6, 10, 1)]));
        assert_eq!(dimensions_of(Layout::Columns, 240, 6), Some(vec![(10, 6, 0), (6, 1, 1)]));
        assert_eq!(dimensions_of(Layout::Images, 40, 1), Some(vec![(10, 1, 0), (1, 10, 0), (1, 10, 1)]));
        assert_eq!(dimensions_of(Layout::Rows, 4, 1), None, "nothing is reduced");
        assert_eq!(dimensions_of(Layout::Rows, 41, 1), None);
        // Halved twice.
        assert_eq!(dimensions_of(Layout::Rows, 4 * GIB, 1), Some(vec![(GIB / 4, 1, 0)]));
        assert_eq!(dimensions_of(Layout::Rows, 4 * GIB, 16), Some(vec![(GIB / 16, 1, 0), (4, GIB / 16, 1)]));
        assert_eq!(dimensions_of(Layout::Columns, 4 * GIB, 16), Some(vec![(GIB / 64, 16, 0), (16, 1, 1)]));
    }
}

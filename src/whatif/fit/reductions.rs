//! The reductions of a program, and the buffers that each requests at another size.
//!
//! A reduction is known by the bytes of its output and of its input, a block that is live at that time. If some
//! recordings have its buffers, its shape is one by which the launch rule gives the buffers of every recording, and
//! none where there are none. If no recording has them, two patterns of a backward pass are looked for: the gradient of
//! a bias beside that of its weight, and the gradient of a broadcast tensor. All other outputs of constant bytes that
//! could be sums over a growing block are possible reductions: they are not part of a prediction.

use super::input::{SizedRecording, SizedRequest};
use super::law::Law;
use super::pairing::RecordingPairs;
use super::recorded_scratch::live_inputs;
use super::reduction::{LaunchConditions, Scratch};
use super::reduction_shape::ReductionShape;
use super::size::Numbers;
use crate::allocator::device::GpuModel;
use crate::base::ids::StackId;

/// Requests between the gradients of one layer, at most.
const NEAR: usize = 6;
/// Smaller outputs have small buffers.
const MIN_POSSIBLE_OUTPUT_BYTES: u64 = 512;
/// A possible reduction reads one of the growing blocks requested last, at most this many.
const MAX_POSSIBLE_INPUTS: usize = 6;

/// A reduction, by the indexes of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reduction {
    pub(super) output: usize,
    input: usize,
    shape: ReductionShape,
}

/// The reductions of the base recording.
#[derive(Debug, Default)]
pub(super) struct Reductions {
    conditions: Option<LaunchConditions>,
    /// In order of their outputs.
    pub(super) known: Vec<Reduction>,
    pub(super) possible: Vec<Reduction>,
    /// Outputs whose buffers follow no shape: those of the base recording, unless all recordings have them.
    unexplained: Vec<(usize, [Law; 2])>,
}

/// The base recording and the others, with the pairs of their requests.
struct Sides<'f, 'r, 's, 'a> {
    base: &'r SizedRecording<'s, 'a>,
    others: &'f [(&'r SizedRecording<'s, 'a>, RecordingPairs)],
    conditions: LaunchConditions,
}

impl Reductions {
    pub(super) fn find<'r, 's, 'a>(
        base: &'r SizedRecording<'s, 'a>,
        others: &[(&'r SizedRecording<'s, 'a>, RecordingPairs)],
    ) -> Self {
        let Some(conditions) = base.conditions else { return Self::default() };
        let sides = Sides { base, others, conditions };
        let mut found = Self { conditions: Some(conditions), ..Self::default() };
        for output in 0..base.requests.len() {
            if base.requests[output].is_scratch {
                continue;
            }
            if sides.has_scratch(output) {
                match sides.explain(output) {
                    Some(reduction) => found.known.push(reduction),
                    None => found.unexplained.extend(sides.buffer_laws(output).map(|laws| (output, laws))),
                }
            } else if let Some(reduction) = sides.bias_gradient(output).or_else(|| sides.broadcast_gradient(output)) {
                found.known.push(reduction);
            } else {
                found.possible.extend(sides.possible_reductions(output));
            }
        }
        found
    }

    /// Whether the buffers after `output` are part of a prediction.
    pub(super) fn explains(&self, output: usize) -> bool {
        self.known.binary_search_by_key(&output, |reduction| reduction.output).is_ok()
            || self.unexplained.binary_search_by_key(&output, |(output, _)| *output).is_ok()
    }

    /// The buffers of `reduction` on `gpu`, or on the recorded one, given the bytes of each request.
    pub(super) fn scratch_of(
        &self,
        reduction: &Reduction,
        gpu: Option<&GpuModel>,
        bytes: impl Fn(usize) -> u64,
    ) -> Option<Scratch> {
        let [input, output] = [reduction.input, reduction.output].map(bytes);
        let recorded = self.conditions?;
        reduction.shape.scratch(input, output, gpu.map_or(recorded, |gpu| recorded.on_gpu(gpu)))
    }

    /// The buffers of all reductions at a size, by the request after which they are made.
    pub(super) fn at(
        &self,
        bytes: impl Fn(usize) -> u64,
        size: Numbers,
        gpu: Option<&GpuModel>,
    ) -> Vec<(usize, Scratch)> {
        let known = self.known.iter().filter_map(|known| Some((known.output, self.scratch_of(known, gpu, &bytes)?)));
        let unexplained = self.unexplained.iter().map(|(output, laws)| {
            let [partial_bytes, semaphore_bytes] = laws.map(|law| law.bytes_at(size));
            (*output, Scratch { partial_bytes, semaphore_bytes })
        });
        known.chain(unexplained).collect()
    }
}

impl Sides<'_, '_, '_, '_> {
    /// A request of the base recording in each recording where it is paired.
    fn in_all(&self, index: usize) -> impl Iterator<Item = Option<&SizedRequest>> {
        let own = std::iter::once(self.base.requests.get(index));
        own.chain(
            self.others.iter().map(move |(other, pairs)| other.requests.get((*pairs.requests.get(index)?)? as usize)),
        )
    }

    /// The bytes of a request in each recording; `None` if it is unpaired in one.
    fn bytes(&self, index: usize) -> Option<Vec<u64>> {
        self.in_all(index).map(|request| Some(request?.bytes)).collect()
    }

    fn has_scratch(&self, output: usize) -> bool {
        self.in_all(output).flatten().any(|request| request.scratch.is_some())
    }

    /// The input and the shape that give the recorded buffers of every recording.
    fn explain(&self, output: usize) -> Option<Reduction> {
        let inputs: Vec<usize> = live_inputs(&self.base.requests, output).collect();
        ReductionShape::all().find_map(|shape| {
            let input = inputs.iter().copied().find(|input| self.agrees(*input, output, shape))?;
            Some(Reduction { output, input, shape })
        })
    }

    /// Whether a reduction has the recorded buffers in every recording, and none where there are none.
    fn agrees(&self, input: usize, output: usize, shape: ReductionShape) -> bool {
        let mut both = self.in_all(input).zip(self.in_all(output));
        both.all(|(input, output)| match (input, output) {
            (Some(input), Some(output)) => {
                shape.has_scratch(input.bytes, output.bytes, self.conditions, output.scratch)
            }
            (_, output) => output.is_none(),
        })
    }

    /// The laws of both buffers, by the recordings that have them.
    fn buffer_laws(&self, output: usize) -> Option<[Law; 2]> {
        self.base.requests[output].scratch?;
        let sizes = std::iter::once(self.base.size).chain(self.others.iter().map(|(other, _)| other.size));
        let recorded = sizes.zip(self.in_all(output));
        let recorded = recorded.filter_map(|(size, request)| Some((size.numbers(), request?.scratch?)));
        let recorded: Vec<_> = recorded.collect();
        let law = |bytes: fn(Scratch) -> u64| {
            let mut points: Vec<_> = recorded.iter().map(|(size, scratch)| (*size, bytes(*scratch))).collect();
            points.sort_unstable();
            let constant = points.last().map(|point| Law::Power { degrees: [0, 0], point: *point });
            Law::fit(&points).filter(|_| points.len() > self.base.size.dimensions()).or(constant)
        };
        Some([law(|scratch| scratch.partial_bytes)?, law(|scratch| scratch.semaphore_bytes)?])
    }

    fn is_constant(&self, index: usize) -> bool {
        let bytes = self.base.requests[index].bytes;
        self.in_all(index).all(|request| request.is_some_and(|request| request.bytes == bytes))
    }

    fn stack(&self, index: usize) -> StackId {
        self.base.requests[index].stack
    }

    /// Memory that a library takes for one call.
    fn is_workspace(&self, index: usize) -> bool {
        let request = &self.base.requests[index];
        request.is_scratch || request.requests_before_free == Some(index + 1)
    }

    /// The next request of the same thread before or after `index` that is no workspace.
    fn neighbor(&self, index: usize, is_after: bool) -> Option<usize> {
        let is_near = |other: &usize| !self.is_workspace(*other);
        let requests = self.base.requests.len();
        let found = if is_after {
            (index + 1..(index + NEAR).min(requests)).find(is_near)
        } else {
            (index.saturating_sub(NEAR)..index).rev().find(is_near)
        };
        found.filter(|other| self.stack(*other) == self.stack(index))
    }

    /// The gradient of a bias: beside it the gradient of its weight, `outputs x inputs`; near it that of the layer's
    /// input, `rows x inputs`; and the gradient of the layer's output, `rows x outputs`, which it sums.
    fn bias_gradient(&self, output: usize) -> Option<Reduction> {
        let is_without_stack = self.base.device.snapshot().stacks.frames(self.stack(output)).is_empty();
        let bytes = self.base.requests[output].bytes;
        if !is_without_stack || bytes < 64 || self.is_workspace(output) || !self.is_constant(output) {
            return None;
        }
        let beside = [false, true].map(|is_after| self.neighbor(output, is_after));
        // Both weights of a norm.
        if beside.iter().flatten().any(|other| self.base.requests[*other].bytes == bytes) {
            return None;
        }
        let is_weight = |other: &usize| {
            let weight = self.base.requests[*other].bytes;
            weight.is_multiple_of(bytes) && weight / bytes > 1 && self.is_constant(*other)
        };
        beside.into_iter().flatten().filter(is_weight).find_map(|weight| {
            let inputs = self.base.requests[weight].bytes / bytes;
            let near = output.saturating_sub(NEAR)..(output + NEAR).min(self.base.requests.len());
            let near = near.filter(|other| self.stack(*other) == self.stack(output) && !self.is_constant(*other));
            near.flat_map(|gradient| [4, 2].map(|item| (gradient, item))).find_map(|(gradient, item)| {
                let rows = self.bytes(gradient)?.into_iter().map(|gradient| {
                    let row_bytes = inputs.checked_mul(item)?;
                    gradient.is_multiple_of(row_bytes).then(|| gradient / row_bytes)
                });
                let summed: Vec<u64> = rows.map(|rows| rows?.checked_mul(bytes)).collect::<Option<_>>()?;
                let shape = ReductionShape::column_sum(item);
                let mut inputs = live_inputs(&self.base.requests, output);
                let input = inputs.find(|input| {
                    self.bytes(*input).is_some_and(|input| input == summed) && self.agrees(*input, output, shape)
                })?;
                Some(Reduction { output, input, shape })
            })
        })
    }

    /// The gradient of a tensor that was broadcast: a product of growing bytes, made right before and freed right
    /// after, is summed over its rows.
    fn broadcast_gradient(&self, output: usize) -> Option<Reduction> {
        let is_without_stack = self.base.device.snapshot().stacks.frames(self.stack(output)).is_empty();
        let beside = [false, true].map(|is_after| self.neighbor(output, is_after));
        let bytes = self.base.requests[output].bytes;
        let is_like = |other: usize| self.base.requests[other].bytes == bytes;
        if !is_without_stack || bytes < 64 || beside.into_iter().flatten().any(is_like) {
            return None;
        }
        let input = output.checked_sub(1)?;
        let product = &self.base.requests[input];
        let sums: Vec<(u64, u64)> = self.bytes(input)?.into_iter().zip(self.bytes(output)?).collect();
        let rows = sums.iter().map(|(product, sum)| product.is_multiple_of(*sum).then(|| product / sum));
        let rows: Vec<u64> = rows.collect::<Option<_>>()?;
        let grows = rows.iter().any(|count| *count != rows[0]) && rows.iter().all(|count| *count > 1);
        let is_made_for_it = product.requests_before_free == Some(output + 1) && product.stack == self.stack(output);
        let shape = ReductionShape::column_sum(self.item_bytes());
        (grows && is_made_for_it && self.agrees(input, output, shape)).then_some(Reduction { output, input, shape })
    }

    /// Bytes of an element of most parameters, if the recorder saw them.
    fn item_bytes(&self) -> u64 {
        self.base.parameter_item_bytes.unwrap_or(4)
    }

    /// The column sums of growing blocks that `output` could be.
    fn possible_reductions(&self, output: usize) -> Vec<Reduction> {
        let bytes = self.base.requests[output].bytes;
        if bytes < MIN_POSSIBLE_OUTPUT_BYTES || self.is_workspace(output) || !self.is_constant(output) {
            return Vec::new();
        }
        let is_growing = |input: &usize| {
            self.base.requests[*input].bytes.is_multiple_of(bytes)
                && !self.is_constant(*input)
                && self.bytes(*input).is_some()
        };
        let shape = ReductionShape::column_sum(self.item_bytes());
        let inputs = live_inputs(&self.base.requests, output).filter(is_growing).take(MAX_POSSIBLE_INPUTS);
        let inputs = inputs.filter(|input| self.agrees(*input, output, shape));
        inputs.map(|input| Reduction { output, input, shape }).collect()
    }
}

//! The reductions of a program, and the buffers that each requests at another size.
//!
//! A reduction is known by the bytes of its output and of its input, a block that is live at that time. If some
//! recordings have its buffers, its shape is one by which the launch rule gives the buffers of every recording, and
//! none where there are none.

use super::input::{SizedRecording, SizedRequest};
use super::pairing::RecordingPairs;
use super::reduction::{LaunchConditions, ReductionShape, Scratch};
use crate::allocator::device::{GPUS, GpuModel};

/// A reduction, by the indexes of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reduction {
    pub(super) output: usize,
    input: usize,
    shape: ReductionShape,
}

impl Reduction {
    /// Its buffers, given the bytes of each request.
    pub(super) fn scratch(&self, bytes: impl Fn(usize) -> u64, launch: Option<LaunchConditions>) -> Option<Scratch> {
        self.shape.scratch([self.input, self.output].map(bytes), launch?)
    }
}

/// The base recording and the others, with the pairs of their requests.
struct Sides<'f, 'r, 's, 'a> {
    base: &'r SizedRecording<'s, 'a>,
    others: &'f [(&'r SizedRecording<'s, 'a>, RecordingPairs)],
    conditions: LaunchConditions,
}

/// The reductions of the `base` recording, in order of their outputs.
pub(super) fn find_reductions<'r, 's, 'a>(
    base: &'r SizedRecording<'s, 'a>,
    others: &[(&'r SizedRecording<'s, 'a>, RecordingPairs)],
) -> Vec<Reduction> {
    let Some(conditions) = base.conditions else { return Vec::new() };
    let sides = Sides { base, others, conditions };
    let outputs = (0..base.requests.len()).filter(|output| !base.requests[*output].is_scratch);
    outputs.filter(|output| sides.has_scratch(*output)).filter_map(|output| sides.explain(output)).collect()
}

impl Sides<'_, '_, '_, '_> {
    /// A request of the base recording in each recording where it is paired.
    fn in_all(&self, index: usize) -> impl Iterator<Item = Option<&SizedRequest>> {
        std::iter::once(self.base.requests.get(index)).chain(
            self.others.iter().map(move |(other, pairs)| other.requests.get((*pairs.requests.get(index)?)? as usize)),
        )
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
                shape.has_scratch([input.bytes, output.bytes], self.conditions, output.scratch)
            }
            (_, output) => output.is_none(),
        })
    }
}

/// The input of a reduction is requested at most this many requests before its output.
const MAX_DISTANCE: usize = 400;
/// Semaphores take 4 bytes for each block of a grid that the device holds at once.
const MAX_SEMAPHORE_BYTES: u64 = 4 * 64 * 256;

/// Marks the buffers of reductions in all recordings, if the launch rule explains their bytes. Without the name of the
/// GPU, the known model is assumed that explains most of them.
pub(super) fn mark_scratch(recordings: &mut [SizedRecording<'_, '_>]) {
    let named = recordings.iter().find_map(|recording| {
        let info = recording.device.snapshot().recorder_info.as_ref()?;
        let device = info.devices.get(usize::try_from(recording.device.id()).ok()?)?;
        GPUS.iter().find(|gpu| gpu.product == device.name)
    });
    let Some(gpu) = named.or_else(|| likeliest_gpu(recordings)) else { return };
    for recording in recordings {
        recording.gpu = named;
        recording.conditions = Some(LaunchConditions::new(gpu));
        for (output, scratch) in find_scratch(recording, gpu) {
            recording.requests[output].scratch = Some(scratch);
            for buffer in [output + 1, output + 2] {
                recording.requests[buffer].is_scratch = true;
            }
        }
    }
}

/// The GPU whose launch rule explains most buffers.
fn likeliest_gpu(recordings: &[SizedRecording<'_, '_>]) -> Option<&'static GpuModel> {
    let explained = GPUS.iter().map(|gpu| {
        let counts = recordings.iter().map(|recording| find_scratch(recording, gpu).len());
        (counts.sum::<usize>(), gpu)
    });
    // `rev`, because models with equal properties explain the same buffers, and the first is taken.
    let most = explained.rev().max_by_key(|(count, _)| *count);
    most.filter(|(count, _)| *count > 0).map(|(_, gpu)| gpu)
}

/// The outputs of reductions in two stages, with the buffers that follow each.
fn find_scratch(recording: &SizedRecording<'_, '_>, gpu: &GpuModel) -> Vec<(usize, Scratch)> {
    let (requests, conditions) = (&recording.requests, LaunchConditions::new(gpu));
    let outputs = (0..requests.len().saturating_sub(2)).filter_map(|output| {
        let scratch = scratch_after(requests, output)?;
        let is_explained = live_inputs(requests, output).any(|input| {
            let bytes = [input, output].map(|index| requests[index].bytes);
            ReductionShape::all().any(|shape| shape.scratch(bytes, conditions) == Some(scratch))
        });
        is_explained.then_some((output, scratch))
    });
    outputs.collect()
}

/// Two requests after `output` that its call frees when it ends.
fn scratch_after(requests: &[SizedRequest], output: usize) -> Option<Scratch> {
    let [output_request, partial, semaphores] = requests.get(output..output + 3)? else { return None };
    let is_pair = [partial, semaphores]
        .into_iter()
        .all(|request| request.requests_before_free == Some(output + 3) && request.stack == output_request.stack);
    let is_semaphores = semaphores.bytes.is_multiple_of(4) && semaphores.bytes <= MAX_SEMAPHORE_BYTES;
    (is_pair && is_semaphores).then_some([partial.bytes, semaphores.bytes])
}

/// The requests whose blocks are live when `output` is requested, the latest first.
pub(super) fn live_inputs(requests: &[SizedRequest], output: usize) -> impl Iterator<Item = usize> + '_ {
    (output.saturating_sub(MAX_DISTANCE)..output).rev().filter(move |input| {
        let request = &requests[*input];
        !request.is_scratch && request.requests_before_free.is_none_or(|freed| freed > output)
    })
}

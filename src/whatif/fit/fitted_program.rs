//! A recorded program whose requests are functions of the size.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::data_factor::DataFactor;
use super::hidden_dimension::{find_hidden_dimensions, law_with};
use super::input::{SizedRecording, SizedRequest};
use super::law::{Law, LawKind};
use super::pairing::{RecordingPairs, pair_recordings};
use super::polynomial::Point;
use super::reduction::Scratch;
use super::reductions::{Reduction, Reductions};
use super::repetition::Repetitions;
use super::shape_law::{Dimension, ShapeLaw};
use super::sized_program::SizedProgram;
use super::steps::{draws, largest_in_any_step};
use crate::allocator::device::GpuModel;
use crate::base::units::ratio;
use crate::replay::ops::ResizedRequest;

/// If the laws of more than this share of the growing bytes are underdetermined, the size is probably not the number
/// that the program's tensors depend on.
const MAX_OPEN_RATIO: f64 = 0.5;

/// CUB aligns the parts of its temporary storage, and adds what the first part may need to be aligned.
const SORT_ALIGNMENT: u64 = 256;
/// The storage of small sorts does not matter.
const MIN_SORT_BYTES: u64 = 1 << 16;
/// A sort frees its storage before the program makes this many other requests.
const MAX_SORT_REQUESTS: usize = 4;

/// A recording, with a law for each of its requests that is fitted to it and to other recordings.
#[derive(Debug)]
pub(in crate::whatif) struct FittedProgram<'r, 's, 'a> {
    pub(in crate::whatif) base: &'r SizedRecording<'s, 'a>,
    /// The other recordings, each with its pairs.
    pub(super) others: Vec<(&'r SizedRecording<'s, 'a>, RecordingPairs)>,
    /// `None` for a request that is paired in no other recording, or in too few.
    pub(super) request_laws: Vec<Option<Law>>,
    /// For each request that changes its size from step to step, in no proportion to another recording: its share of the
    /// largest size in any step, to which its law is fitted.
    pub(super) step_shares: Vec<Option<f64>>,
    /// How much more these requests take than their laws.
    pub(super) data_factor: DataFactor,
    /// The laws of the blocks from before the recording.
    pub(super) initial_laws: Vec<Option<Law>>,
    pub(super) reductions: Reductions,
    /// The ranges of operations that larger sizes repeat more often.
    pub(super) repetitions: Option<Repetitions>,
    /// The most common law among requests of the same bytes.
    law_by_bytes: FxHashMap<u64, Law>,
}

impl<'r, 's, 'a> FittedProgram<'r, 's, 'a> {
    /// Fits the requests of `base` to it and to `others`, recordings at other sizes.
    pub(super) fn from_recordings(base: &'r SizedRecording<'s, 'a>, others: &[&'r SizedRecording<'s, 'a>]) -> Self {
        let mut others: Vec<_> = others.iter().map(|other| (*other, pair_recordings(base, other))).collect();
        let mut repetitions = Repetitions::find(base, &others);
        if let Some(found) = &mut repetitions {
            let pairs = found.take_pairs();
            let used = others.split_off(others.len() - pairs.len());
            others = used.into_iter().zip(pairs).map(|((other, _), pairs)| (other, pairs)).collect();
        }
        let points = |own_bytes: u64, index: usize, bytes_of: &dyn Fn(usize, usize) -> Option<u64>| {
            let mut points: Vec<Point> = vec![(base.size, own_bytes)];
            for (other_index, (other, _)) in others.iter().enumerate() {
                points.extend(bytes_of(other_index, index).map(|bytes| (other.size, bytes)));
            }
            points.sort_unstable();
            (points.len() > 1).then_some(points)
        };
        let law = |own_bytes: u64, index: usize, bytes_of: &dyn Fn(usize, usize) -> Option<u64>| {
            Law::fit(&points(own_bytes, index, bytes_of)?)
        };
        let request_bytes = |other: usize, index: usize| {
            let (other, pairs) = &others[other];
            let paired = pairs.requests[index]?;
            other.requests.get(paired as usize).map(|request| request.bytes)
        };
        let by_shape = laws_by_shape(base, &others);
        let hidden = hidden_dimensions(base, &others);
        let largest_in_step = largest_in_any_step(base);
        let largest_elsewhere: Vec<_> = others.iter().map(|(other, _)| largest_in_any_step(other)).collect();
        let draws = draws(std::iter::once(base).chain(others.iter().map(|(other, _)| *other)));
        let data_exponent = draws.map(|draws| draws.exponent());
        let varies_by_step = |index: usize| {
            let varies_elsewhere = others.iter().zip(&largest_elsewhere).any(|((_, pairs), largest_in_step)| {
                let paired = pairs.requests[index].and_then(|paired| largest_in_step.get(paired as usize));
                paired.is_some_and(Option::is_some)
            });
            varies_elsewhere || largest_in_step[index].is_some()
        };
        let largest_request_bytes = |other: usize, index: usize| {
            let paired = others[other].1.requests[index]? as usize;
            largest_elsewhere[other].get(paired)?.or_else(|| request_bytes(other, index))
        };
        let initial_bytes = |other: usize, index: usize| {
            let (other, pairs) = &others[other];
            let paired = pairs.initial_blocks[index]?;
            let initial_blocks = &other.program().initial_blocks;
            initial_blocks.get(paired as usize).map(|block| block.requested)
        };
        let stacks = &base.device.snapshot().stacks;
        let requests = base.requests.iter().enumerate();
        let laws = requests.map(|(index, request)| {
            // Proportional growth needs no shape.
            let own_law = match law(request.bytes, index, &request_bytes) {
                Some(Law::Polynomial(sum)) => {
                    let bytes = bytes_at_all(base, &others, index);
                    let recorded = bytes.as_ref().and_then(|bytes| by_shape.get(bytes)).map(|shape| Law::Shape(*shape));
                    let likely = || {
                        let points = points_at_all(base, &others, bytes.as_ref().filter(|_| !hidden.is_empty())?);
                        let shape = hidden.iter().find_map(|dimension| law_with(*dimension, &points))?;
                        Some(if others.len() == 1 { Law::LikelyShape(shape) } else { Law::Shape(shape) })
                    };
                    Some(recorded.or_else(likely).unwrap_or(Law::Polynomial(sum)))
                }
                own_law => own_law,
            };
            // Requests without a stack are paired by their bytes alone, so a curve suggests a wrong pair. With only two
            // recordings no check shows that it is not a line.
            let may_bend = others.len() == 1 || !stacks.frames(request.stack).is_empty();
            let own_law = own_law.filter(|law| may_bend || !law.is_guess());
            // A request in exact proportion between the recordings needs no maximum: the steps have the same data.
            if matches!(own_law, None | Some(Law::Power { .. } | Law::Shape(_))) || !varies_by_step(index) {
                return (own_law, None);
            }
            let largest = largest_in_step[index].unwrap_or(request.bytes);
            let points = points(largest, index, &largest_request_bytes);
            let law = points.zip(data_exponent).and_then(|(points, common)| Law::near_power(&points, common));
            (law, Some(ratio(request.bytes, largest)))
        });
        let (mut request_laws, step_shares): (Vec<Option<Law>>, Vec<Option<f64>>) = laws.unzip();
        let reductions = Reductions::find(base, &others);
        for (output, request) in base.requests.iter().enumerate() {
            if request.scratch.is_some() && reductions.explains(output) {
                for buffer in [output + 1, output + 2] {
                    let point = (base.size, base.requests[buffer].bytes);
                    request_laws[buffer] = Some(Law::Power { degree: 0, point });
                }
            }
        }
        for (request, law) in repetitions.iter().flat_map(|repetitions| repetitions.laws(base)) {
            request_laws[request] = Some(law);
        }
        let initial_blocks = base.program().initial_blocks.iter().enumerate();
        let initial_laws = initial_blocks.map(|(index, block)| law(block.requested, index, &initial_bytes));
        let initial = initial_laws.collect();
        let law_by_bytes = most_common_laws(base, &request_laws);
        let initial_laws = initial;
        let data_factor = DataFactor::ONE;
        Self {
            base,
            others,
            request_laws,
            step_shares,
            data_factor,
            initial_laws,
            reductions,
            repetitions,
            law_by_bytes,
        }
    }

    /// The law to assume for an unpaired request: that of most requests of the same bytes; else in proportion to the
    /// size, as activations do, unless the block is never freed.
    fn assumed_law(&self, request: &SizedRequest) -> Option<Law> {
        let in_proportion = Law::Power { degree: 1, point: (self.base.size, request.bytes) };
        let most_common = self.law_by_bytes.get(&request.bytes).copied();
        most_common.or(request.requests_before_free.map(|_| in_proportion))
    }

    /// The share of the recording's requested bytes that has a law.
    pub(super) fn requested_paired_ratio(&self) -> f64 {
        1.0 - self.requested_ratio(|index| self.request_laws[index].is_none())
    }

    /// The share of the recording's requested bytes whose law is a guess. If the laws of most growing bytes are
    /// underdetermined, all of these count: the program then depends on another number, for example a padded one, or
    /// one with an additional token.
    pub(super) fn guessed_ratio(&self) -> f64 {
        // Varying requests have a warning of their own.
        let share = |is_selected: fn(&Law) -> bool| {
            self.requested_ratio(|index| {
                self.step_shares[index].is_none() && self.request_laws[index].is_some_and(|law| is_selected(&law))
            })
        };
        let underdetermined = share(Law::is_underdetermined);
        if underdetermined > share(Law::grows) * MAX_OPEN_RATIO { underdetermined } else { share(Law::is_guess) }
    }

    /// The selected share of all requested bytes.
    fn requested_ratio(&self, is_selected: impl Fn(usize) -> bool) -> f64 {
        let (mut total, mut selected) = (0u64, 0u64);
        for (index, request) in self.base.requests.iter().enumerate() {
            total = total.saturating_add(request.bytes);
            selected = selected.saturating_add(if is_selected(index) { request.bytes } else { 0 });
        }
        ratio(selected, total)
    }

    /// The recorded program with the bytes of `size`. If blocks from before the recording change, the program allocates
    /// them itself, from an empty pool.
    pub(super) fn program_at(&self, size: u64, gpu: Option<&GpuModel>) -> SizedProgram<'a> {
        let (requests, initial) = self.requests_at(size, gpu);
        self.sized(size, &requests, &initial)
    }

    fn sized(&self, size: u64, requests: &[ResizedRequest], initial: &[u64]) -> SizedProgram<'a> {
        let program = self.base.program();
        match self.repetitions.as_ref().and_then(|repetitions| repetitions.ops_at(size)) {
            Some(ops) => SizedProgram::from_ops(program, &ops, requests, initial),
            None => SizedProgram::from_requests(program, requests, initial),
        }
    }

    /// Whether the program at `size` can be replayed: it has as many repetitions as those that differ from the others,
    /// and not too many operations.
    pub(super) fn can_predict(&self, size: u64) -> bool {
        self.repetitions.as_ref().is_none_or(|repetitions| repetitions.has_ops_at(size))
    }

    /// Product name of the GPU that decides which reductions take a buffer: `gpu`, or the recorded one; `None` without
    /// reductions, and if the recording does not name it.
    pub(super) fn launched_on(&self, gpu: Option<&'static GpuModel>) -> Option<&'static str> {
        let has_reductions = !self.reductions.known.is_empty() || !self.reductions.possible.is_empty();
        gpu.or(self.base.gpu).filter(|_| has_reductions).map(|gpu| gpu.product)
    }

    /// Whether larger sizes repeat operations more often.
    pub(in crate::whatif) fn has_repetitions(&self) -> bool {
        self.repetitions.is_some()
    }

    /// Number of requests at `size`.
    pub(super) fn request_count(&self, size: u64) -> usize {
        let ops = self.repetitions.as_ref().and_then(|repetitions| repetitions.op_count_at(size));
        ops.map_or(self.base.requests.len(), |ops| ops / 2)
    }

    /// The buffers of `reduction` at `size`.
    fn scratch_at(&self, reduction: &Reduction, size: u64, gpu: Option<&GpuModel>) -> Option<Scratch> {
        self.reductions.scratch_of(reduction, gpu, |index| self.request_bytes_at(index, size))
    }

    /// Whether a possible reduction takes two stages at `size`.
    pub(super) fn has_possible_scratch(&self, size: u64, gpu: Option<&GpuModel>) -> bool {
        self.reductions.possible.iter().any(|reduction| self.scratch_at(reduction, size, gpu).is_some())
    }

    /// Whether sorts or scans of growing data request storage. Such a call takes other paths at other sizes, and its
    /// storage differs.
    pub(super) fn has_growing_sorts(&self) -> bool {
        self.base.requests.iter().enumerate().any(|(index, request)| {
            let is_temporary = request.requests_before_free.is_some_and(|freed| freed <= index + MAX_SORT_REQUESTS);
            let is_storage = request.bytes % SORT_ALIGNMENT == SORT_ALIGNMENT - 1 && request.bytes > MIN_SORT_BYTES;
            is_temporary && is_storage && self.request_laws[index].is_none_or(|law| law.grows())
        })
    }

    /// The same program, in which every possible reduction that takes two stages at `size` has its largest buffers.
    pub(super) fn worst_program_at(&self, size: u64, gpu: Option<&GpuModel>) -> SizedProgram<'a> {
        let (mut requests, initial) = self.requests_at(size, gpu);
        for (output, scratch) in self.possible_scratch_at(size, gpu) {
            requests[output].temporaries = Some(scratch.to_bytes());
        }
        self.sized(size, &requests, &initial)
    }

    /// The largest buffers of each possible reduction at `size`, by its output.
    fn possible_scratch_at(&self, size: u64, gpu: Option<&GpuModel>) -> BTreeMap<usize, Scratch> {
        let mut largest: BTreeMap<usize, Scratch> = BTreeMap::new();
        for reduction in &self.reductions.possible {
            if let Some(scratch) = self.scratch_at(reduction, size, gpu) {
                let known = largest.entry(reduction.output).or_insert(scratch);
                *known = (*known).max(scratch);
            }
        }
        largest
    }

    /// Each request and the bytes of each block from before the recording, at `size`.
    fn requests_at(&self, size: u64, gpu: Option<&GpuModel>) -> (Vec<ResizedRequest>, Vec<u64>) {
        let (mut bytes, mut initial) = self.bytes_at(size);
        // A workspace of cuBLAS is larger on some GPUs. It is not made smaller: its 32 MiB may be a tensor's.
        let workspaces = self.base.gpu.zip(gpu).map(|(of, to)| [of, to].map(GpuModel::cublas_workspace_bytes));
        if let Some([recorded, predicted]) = workspaces.filter(|[recorded, predicted]| recorded < predicted) {
            let all = bytes.iter_mut().chain(&mut initial);
            all.filter(|bytes| **bytes == recorded).for_each(|bytes| *bytes = predicted);
        }
        let is_made = |request: &SizedRequest| !request.is_scratch;
        let made = bytes
            .iter()
            .zip(&self.base.requests)
            .map(|(bytes, request)| ResizedRequest { bytes: is_made(request).then_some(*bytes), temporaries: None });
        let mut requests: Vec<ResizedRequest> = made.collect();
        for (output, scratch) in self.reductions.at(|index| bytes[index], gpu) {
            requests[output].temporaries = Some(scratch.to_bytes());
        }
        (requests, initial)
    }

    /// The bytes of each request and of each block from before the recording, at `size`.
    pub(in crate::whatif) fn bytes_at(&self, size: u64) -> (Vec<u64>, Vec<u64>) {
        let requests = (0..self.base.requests.len()).map(|index| self.request_bytes_at(index, size));
        let initial = self.initial_laws.iter().zip(&self.base.program().initial_blocks);
        let initial = initial.map(|(law, block)| law.map_or(block.requested, |law| law.bytes_at(size)));
        (requests.collect(), initial.collect())
    }

    fn request_bytes_at(&self, index: usize, size: u64) -> u64 {
        let request = &self.base.requests[index];
        let law = self.request_laws[index].or_else(|| self.assumed_law(request));
        let bytes = law.map_or(request.bytes, |law| law.bytes_at(size));
        match self.step_shares[index] {
            Some(share) => self.data_factor.apply(bytes, share, size).max(1),
            None => bytes,
        }
    }
}

/// The bytes of a request in all recordings, if it is paired in each.
fn bytes_at_all(
    base: &SizedRecording<'_, '_>,
    others: &[(&SizedRecording<'_, '_>, RecordingPairs)],
    index: usize,
) -> Option<Vec<u64>> {
    let elsewhere =
        others.iter().map(|(other, pairs)| Some(other.requests.get(pairs.requests[index]? as usize)?.bytes));
    std::iter::once(Some(base.requests[index].bytes)).chain(elsewhere).collect()
}

/// A size and the bytes there, for each recording.
fn points_at_all(
    base: &SizedRecording<'_, '_>,
    others: &[(&SizedRecording<'_, '_>, RecordingPairs)],
    bytes: &[u64],
) -> Vec<Point> {
    let sizes = std::iter::once(base.size).chain(others.iter().map(|(other, _)| other.size));
    sizes.zip(bytes.iter().copied()).collect()
}

/// Dimensions that the bytes of the requests show.
fn hidden_dimensions(
    base: &SizedRecording<'_, '_>,
    others: &[(&SizedRecording<'_, '_>, RecordingPairs)],
) -> Vec<Dimension> {
    let mut order: Vec<usize> = (0..=others.len()).collect();
    let sizes: Vec<u64> = std::iter::once(base.size).chain(others.iter().map(|(other, _)| other.size)).collect();
    order.sort_by_key(|index| sizes[*index]);
    let in_order = |bytes: Vec<u64>| order.iter().map(|index| bytes[*index]).collect::<Vec<u64>>();
    let bytes = (0..base.requests.len()).filter_map(|index| Some(in_order(bytes_at_all(base, others, index)?)));
    let sizes: Vec<u64> = order.iter().map(|index| sizes[*index]).collect();
    find_hidden_dimensions(&sizes, &bytes.collect())
}

/// The laws of tensors whose shape is known in all recordings, by their bytes in each. Another request with the same
/// bytes in all of them has a tensor of that shape too, or one that grows in the same way.
fn laws_by_shape(
    base: &SizedRecording<'_, '_>,
    others: &[(&SizedRecording<'_, '_>, RecordingPairs)],
) -> FxHashMap<Vec<u64>, ShapeLaw> {
    let mut laws: FxHashMap<Vec<u64>, ShapeLaw> = FxHashMap::default();
    let law_of = |index: usize, own_shape: &[u64]| {
        let bytes = bytes_at_all(base, others, index)?;
        let points = points_at_all(base, others, &bytes);
        let elsewhere =
            others.iter().map(|(other, pairs)| other.shapes.get(&(pairs.requests[index]? as usize)).copied());
        let shapes: Vec<&[u64]> = std::iter::once(Some(own_shape)).chain(elsewhere).collect::<Option<_>>()?;
        Some((bytes, ShapeLaw::fit(&points, &shapes)?))
    };
    let mut known: Vec<(usize, &[u64])> = base.shapes.iter().map(|(index, shape)| (*index, *shape)).collect();
    known.sort_unstable_by_key(|(index, _)| *index);
    for (bytes, law) in known.into_iter().filter_map(|(index, shape)| law_of(index, shape)) {
        laws.entry(bytes).or_insert(law);
    }
    laws
}

/// The most common law among requests of the same bytes, the simplest of equally common ones.
fn most_common_laws(base: &SizedRecording<'_, '_>, laws: &[Option<Law>]) -> FxHashMap<u64, Law> {
    let simplicity = |kind: LawKind| LawKind::ALL.iter().position(|known| *known == kind);
    let mut law_counts: FxHashMap<_, (usize, Law)> = FxHashMap::default();
    for (request, law) in base.requests.iter().zip(laws) {
        let Some(law) = law else { continue };
        law_counts.entry((request.bytes, simplicity(law.kind()))).or_insert((0, *law)).0 += 1;
    }
    let mut law_counts: Vec<_> = law_counts.into_iter().collect();
    law_counts.sort_by_key(|((bytes, kind), (occurrences, _))| (*bytes, *occurrences, Reverse(*kind)));
    law_counts.into_iter().map(|((bytes, _), (_, law))| (bytes, law)).collect()
}

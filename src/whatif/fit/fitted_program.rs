//! A recorded program whose requests are functions of the size. Each request is paired with its counterparts in
//! recordings at other sizes, and a law is fitted to their bytes. Any recording of a device can be fitted to the
//! others.

use std::cmp::Reverse;
use std::sync::OnceLock;

use itertools::Itertools as _;
use rustc_hash::FxHashMap;

use super::input::{FitInput, SizedRecording, SizedRequest};
use super::law::{Law, Point};
use super::pairing::{RecordingPairs, pair_recordings, requests_that_vary};
use super::reduction::LaunchConditions;
use super::reductions::{Reduction, find_reductions, mark_scratch};
use crate::allocator::device::GpuModel;
use crate::base::units::ratio;
use crate::replay::ops::{Program, Script, ScriptOp, ScriptOpKind};

/// If more than this share of the growing bytes has an underdetermined law, tensors probably depend on another number
/// than the size.
const MAX_OPEN_RATIO: f64 = 0.5;

/// CUB aligns each part of its temporary storage to this many bytes, and requests one byte less on top to align the first.
const SORT_ALIGNMENT: u64 = 256;
/// A sort with less storage is ignored.
const MIN_SORT_BYTES: u64 = 1 << 16;
/// Temporary storage is freed before this many further requests.
const MAX_SORT_REQUESTS: usize = 4;

/// A recording with a law for each of its requests, fitted to this and other recordings.
#[derive(Debug)]
pub(in crate::whatif) struct FittedProgram<'r, 's, 'a> {
    pub(in crate::whatif) base: &'r SizedRecording<'s, 'a>,
    /// The other recordings, each with its pairs.
    pub(super) others: Vec<PairedRecording<'r, 's, 'a>>,
    /// By request; `None` if too few other recordings have its pair.
    pub(super) request_laws: Vec<Option<Law>>,
    /// By request: its bytes vary from step to step, and not in proportion to another recording.
    pub(super) varies: Vec<bool>,
    /// By block from before the recording.
    pub(super) initial_laws: Vec<Option<Law>>,
    pub(super) reductions: Vec<Reduction>,
    /// The most common law among requests of the same bytes.
    law_by_bytes: FxHashMap<u64, Law>,
}

impl<'r, 's, 'a> FittedProgram<'r, 's, 'a> {
    /// Fits the requests of `base` to it and to `others`, recordings at other sizes.
    pub(super) fn from_recordings(base: &'r SizedRecording<'s, 'a>, others: &[&'r SizedRecording<'s, 'a>]) -> Self {
        let others: Vec<_> = others.iter().map(|other| (*other, pair_recordings(base, other))).collect();
        let (mut request_laws, varies) = fit_requests(base, &others);
        let reductions = find_reductions(base, &others);
        for output in reductions.iter().map(|known| known.output).filter(|at| base.requests[*at].scratch.is_some()) {
            for buffer in [output + 1, output + 2] {
                request_laws[buffer] = Some(Law::power(0, (base.size, base.requests[buffer].bytes)));
            }
        }
        let initial_blocks = base.device.program().initial_blocks.iter().enumerate();
        let initial_laws = initial_blocks.map(|(index, block)| {
            Law::fit(&points((base.size, block.requested), &others, |other, pairs| {
                let initial_blocks = &other.device.program().initial_blocks;
                initial_blocks.get(pairs.initial_blocks[index]? as usize).map(|block| block.requested)
            }))
        });
        let initial_laws = initial_laws.collect();
        let law_by_bytes = most_common_laws(base, &request_laws);
        Self { base, others, request_laws, varies, initial_laws, reductions, law_by_bytes }
    }

    /// The law to assume for an unpaired request: the most common law among requests of the same bytes. Without one it
    /// grows in proportion to the size, as activations do, unless the block is never freed.
    fn assumed_law(&self, request: &SizedRequest) -> Option<Law> {
        let in_proportion = Law::power(1, (self.base.size, request.bytes));
        self.law_by_bytes.get(&request.bytes).copied().or(request.requests_before_free.map(|_| in_proportion))
    }

    /// The share of the recording's requested bytes that has a law.
    pub(super) fn requested_paired_ratio(&self) -> f64 {
        1.0 - self.requested_ratio(|index| self.request_laws[index].is_none())
    }

    /// The share of the recording's requested bytes whose law is a guess. If the laws of most growing bytes are
    /// underdetermined, all of them count as guesses: the program then depends on another number than the size, such as
    /// a padded length.
    pub(super) fn guessed_ratio(&self) -> f64 {
        let underdetermined = self.ratio_of_laws(|law| law.is_underdetermined);
        let is_open = underdetermined > self.ratio_of_laws(Law::grows) * MAX_OPEN_RATIO;
        if is_open { underdetermined } else { self.ratio_of_laws(|law| law.is_guess) }
    }

    /// The share of the requested bytes with selected laws. Varying requests do not count: they have a warning of their own.
    fn ratio_of_laws(&self, is_selected: fn(&Law) -> bool) -> f64 {
        self.requested_ratio(|index| {
            !self.varies[index] && self.request_laws[index].is_some_and(|law| is_selected(&law))
        })
    }

    /// The share of all requested bytes that the selected requests have.
    fn requested_ratio(&self, is_selected: impl Fn(usize) -> bool) -> f64 {
        let (mut total, mut selected) = (0u64, 0u64);
        for (index, request) in self.base.requests.iter().enumerate() {
            total = total.saturating_add(request.bytes);
            selected = selected.saturating_add(if is_selected(index) { request.bytes } else { 0 });
        }
        ratio(selected, total)
    }

    /// The program as it would run at `size`. If blocks from before the recording change, the program allocates them
    /// itself, from an empty pool.
    pub(super) fn program_at(&self, size: u64, gpu: Option<&GpuModel>) -> Program<'a> {
        self.script_at(size, gpu).to_program(self.base.device.program())
    }

    /// Product name of the GPU that decides which reductions take a buffer: `gpu`, else the recorded one. `None` if there
    /// are no reductions, or the recording does not name its GPU.
    pub(super) fn launched_on(&self, gpu: Option<&'static GpuModel>) -> Option<&'static str> {
        gpu.or(self.base.gpu).filter(|_| !self.reductions.is_empty()).map(|gpu| gpu.product)
    }

    /// Whether sorts or scans of growing data request storage. Their algorithm depends on the size, and their storage on
    /// the algorithm.
    pub(super) fn has_growing_sorts(&self) -> bool {
        self.base.requests.iter().enumerate().any(|(index, request)| {
            let is_temporary = request.requests_before_free.is_some_and(|freed| freed <= index + MAX_SORT_REQUESTS);
            let is_storage = request.bytes % SORT_ALIGNMENT == SORT_ALIGNMENT - 1 && request.bytes > MIN_SORT_BYTES;
            is_temporary && is_storage && self.request_laws[index].is_none_or(|law| law.grows())
        })
    }

    /// The recorded operations with the bytes of `size`. The buffers of reductions are copies of the outputs' blocks, at
    /// the end of the list.
    pub(super) fn script_at(&self, size: u64, gpu: Option<&GpuModel>) -> Script {
        let Script { ops, blocks, initial_count } = &self.base.script;
        let mut script =
            Script { ops: Vec::with_capacity(ops.len()), blocks: blocks.clone(), initial_count: *initial_count };
        for (block, bytes) in script.blocks.iter_mut().zip(self.bytes_at(size)) {
            block.bytes = bytes;
        }
        // Some GPUs have a larger cuBLAS workspace. A smaller one is not applied: a block of 32 MiB may be a tensor.
        let workspaces = self.base.gpu.zip(gpu).map(|(of, to)| [of, to].map(GpuModel::cublas_workspace_bytes));
        if let Some([recorded, predicted]) = workspaces.filter(|[recorded, predicted]| recorded < predicted) {
            let all = script.blocks.iter_mut().filter(|block| block.bytes == recorded);
            all.for_each(|block| block.bytes = predicted);
        }
        let conditions = gpu.map(LaunchConditions::new).or(self.base.conditions);
        let mut reductions = self.reductions.iter().peekable();
        for op in ops {
            let (ScriptOpKind::Alloc(block) | ScriptOpKind::Free { block, .. }) = op.kind else {
                script.ops.push(*op);
                continue;
            };
            let request = (block as usize).checked_sub(*initial_count);
            if request.is_some_and(|request| self.base.requests[request].is_scratch) {
                continue;
            }
            script.ops.push(*op);
            let is_alloc = op.kind == ScriptOpKind::Alloc(block);
            let reduction = reductions.next_if(|reduction| is_alloc && Some(reduction.output) == request);
            let Some(reduction) = reduction else { continue };
            let buffers = reduction.scratch(|request| script.blocks[initial_count + request].bytes, conditions);
            let Some(buffers) = buffers else { continue };
            let buffers = buffers.map(|bytes| script.push_copy(block, bytes, op.source));
            script.ops.extend(buffers.into_iter().rev().map(|buffer| ScriptOp::moved_free(op.source, buffer)));
        }
        script
    }

    /// The bytes of each block from before the recording and of each request, at `size`.
    pub(in crate::whatif) fn bytes_at(&self, size: u64) -> Vec<u64> {
        let initial = self.initial_laws.iter().zip(&self.base.script.blocks);
        let initial = initial.map(|(law, block)| law.map_or(block.bytes, |law| law.bytes_at(size)));
        let requests = self.request_laws.iter().zip(&self.base.requests).map(|(law, request)| {
            let law = law.or_else(|| self.assumed_law(request));
            law.map_or(request.bytes, |law| law.bytes_at(size))
        });
        initial.chain(requests).collect()
    }
}

/// Another recording, and the pairs of its requests and blocks with those of the fitted one.
type PairedRecording<'r, 's, 'a> = (&'r SizedRecording<'s, 'a>, RecordingPairs);

/// The bytes of one block at each size: `own`, and `bytes_in` of each other recording that has its pair.
fn points<'s, 'a>(
    own: Point,
    others: &[PairedRecording<'_, 's, 'a>],
    bytes_in: impl Fn(&SizedRecording<'s, 'a>, &RecordingPairs) -> Option<u64>,
) -> Vec<Point> {
    let others = others.iter().filter_map(|(other, pairs)| Some((other.size, bytes_in(other, pairs)?)));
    others.chain([own]).sorted_unstable().collect()
}

/// The law of each request of `base`, and whether its bytes vary between steps.
fn fit_requests(
    base: &SizedRecording<'_, '_>,
    others: &[PairedRecording<'_, '_, '_>],
) -> (Vec<Option<Law>>, Vec<bool>) {
    let stacks = &base.device.snapshot().stacks;
    let varies_here = requests_that_vary(base);
    let varies_elsewhere: Vec<_> = others.iter().map(|(other, _)| requests_that_vary(other)).collect();
    let laws = base.requests.iter().enumerate().map(|(index, request)| {
        let own = (base.size, request.bytes);
        let points = points(own, others, |other, pairs| {
            other.requests.get(pairs.requests[index]? as usize).map(|request| request.bytes)
        });
        // Requests without a stack are paired by their bytes alone, so a curve suggests a wrong pair. Two recordings
        // cannot tell a curve from a line.
        let may_bend = others.len() == 1 || !stacks.frames(request.stack).is_empty();
        let law = Law::fit(&points).filter(|law| may_bend || !law.is_guess);
        let mut elsewhere = others.iter().zip(&varies_elsewhere);
        let varies = varies_here[index]
            || elsewhere.any(|((_, pairs), varies)| {
                pairs.requests[index].is_some_and(|paired| varies.get(paired as usize) == Some(&true))
            });
        match law {
            // Steps that read the same data in all recordings vary in exact proportion; these do not.
            Some(law) if varies && !law.is_exact_power() => (Some(Law::near_power(&points, own)), true),
            law => (law, false),
        }
    });
    laws.unzip()
}

/// The most common law among requests of the same bytes, the simplest of equally common ones.
fn most_common_laws(base: &SizedRecording<'_, '_>, laws: &[Option<Law>]) -> FxHashMap<u64, Law> {
    let mut law_counts: FxHashMap<_, (usize, Law)> = FxHashMap::default();
    for (request, law) in base.requests.iter().zip(laws) {
        let Some(law) = law else { continue };
        law_counts.entry((request.bytes, law.kind())).or_insert((0, *law)).0 += 1;
    }
    // The map keeps the last of several laws for the same bytes.
    let laws = law_counts.into_iter().sorted_by_key(|((bytes, kind), (count, _))| (*bytes, *count, Reverse(*kind)));
    laws.map(|((bytes, _), (_, law))| (bytes, law)).collect()
}

/// The recordings of one device, in order of size.
pub(in crate::whatif) struct DeviceRecordings<'s, 'a> {
    pub(super) recordings: Vec<SizedRecording<'s, 'a>>,
}

impl<'s, 'a> DeviceRecordings<'s, 'a> {
    /// The recordings of device `id` in order of size; those without a trace of it are left out.
    pub(in crate::whatif) fn from_inputs(inputs: &[FitInput<'s, 'a>], id: u64) -> Self {
        let mut recordings: Vec<SizedRecording<'s, 'a>> =
            inputs.iter().filter_map(|input| SizedRecording::from_input(input, id)).collect();
        recordings.sort_by_key(|recording| recording.size);
        mark_scratch(&mut recordings);
        Self { recordings }
    }

    /// The recording nearest to `size`, except the one of size `left_out`. Recordings that do not end in a failure come
    /// first; of two equally near ones, the larger.
    pub(super) fn nearest(&self, size: u64, left_out: Option<u64>) -> Option<usize> {
        let candidates = self.recordings.iter().enumerate();
        let candidates = candidates.filter(|(_, recording)| Some(recording.size) != left_out);
        let nearest = candidates.min_by_key(|(_, recording)| {
            (recording.ends_in_failure(), recording.size.abs_diff(size), Reverse(recording.size))
        });
        nearest.map(|(index, _)| index)
    }

    /// Fits the recording at `index` to all others, except the one of size `left_out`.
    pub(super) fn fit_recording(&self, index: usize, left_out: Option<u64>) -> FittedProgram<'_, 's, 'a> {
        let base = &self.recordings[index];
        let others =
            self.recordings.iter().filter(|recording| recording.size != base.size && Some(recording.size) != left_out);
        let others: Vec<&SizedRecording<'s, 'a>> = others.collect();
        FittedProgram::from_recordings(base, &others)
    }
}

pub(in crate::whatif) struct FittedSizes<'r, 's, 'a> {
    recordings: &'r DeviceRecordings<'s, 'a>,
    programs: Vec<OnceLock<FittedProgram<'r, 's, 'a>>>,
}

impl<'r, 's, 'a> FittedSizes<'r, 's, 'a> {
    /// Fits nothing yet. `recordings` must not be empty.
    pub(in crate::whatif) fn new(recordings: &'r DeviceRecordings<'s, 'a>) -> Self {
        let programs = recordings.recordings.iter().map(|_| OnceLock::new()).collect();
        Self { recordings, programs }
    }

    /// The program of the recording nearest to `size`.
    pub(in crate::whatif) fn at(&self, size: u64) -> &FittedProgram<'r, 's, 'a> {
        let nearest = self.recordings.nearest(size, None).unwrap_or(0);
        self.programs[nearest].get_or_init(|| self.recordings.fit_recording(nearest, None))
    }
}

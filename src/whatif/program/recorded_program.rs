//! The recorded program of one device: its operations, their phases, its pairs of a forward pass and its backward pass, and
//! what each block was for.

use std::ops::Range;
use std::sync::OnceLock;

use rustc_hash::{FxHashMap, FxHashSet};

use super::report::{ChangedProgram, ProgramChange};
use crate::allocator::device::GpuModel;
use crate::allocator::round_size;
use crate::base::ids::{StackId, SymbolId, to_u32};
use crate::replay::ops::{Program, Script, ScriptBlock, ScriptOpKind, ScriptPeak};
use crate::snapshot::{BlockState, TensorKind};
use crate::stacks::frames::{CodeLocation, LineId};
use crate::stacks::phases::{KnownPurpose, Phase};
use crate::study::DeviceStudy;
use crate::study::attribution::{Allocation, BlockLives, Category, Confidence, classify_allocations};
use crate::study::memory::{sorted_by_bytes, sum_by_key};
use crate::whatif::Sureness;
use crate::whatif::forecast::{Forecast, ForecastLength};

/// Changes to longer traces are only replayed on request, because each costs a replay.
const MAX_ENTRIES_BY_DEFAULT: usize = 500_000;

/// Whether the trace of `device` is short enough to replay changes to its program by default.
pub(in crate::whatif) fn is_tried_by_default(device: DeviceStudy<'_, '_>) -> bool {
    device.device().len() <= MAX_ENTRIES_BY_DEFAULT
}

/// The operations of a device's program. After a failure that ended it they go on as predicted, up to the end of one more iteration.
#[derive(Clone)]
pub(crate) struct RecordedProgram<'s, 'a> {
    pub(crate) device: DeviceStudy<'s, 'a>,
    /// The prediction of the requests after the failure that ended the recording.
    pub(crate) forecast: Option<Forecast<'a>>,
    /// The unchanged operations.
    pub(crate) script: Script,
    /// The trace entry of each operation, which has its stack and phase. A repeated operation has that of its source.
    entry_indexes: Vec<u32>,
    /// Number of recorded operations; later ones repeat some of these.
    recorded_ops: usize,
    pub(crate) peak: ScriptPeak,
    categories: OnceLock<Categories>,
    /// The types of elements that the recorder saw, by the stack that allocated; `None` if its blocks differ.
    dtypes: OnceLock<FxHashMap<StackId, Option<SymbolId>>>,
}

/// The category of each block, and how sure that is.
type Categories = (Vec<Category>, Vec<Confidence>);

fn dtypes_by_stack(device: DeviceStudy<'_, '_>) -> FxHashMap<StackId, Option<SymbolId>> {
    let tensors = device.snapshot().tensor_names.iter().flat_map(|names| &names.tensors);
    let by_address: FxHashMap<u64, SymbolId> = tensors.map(|tensor| (tensor.address, tensor.dtype)).collect();
    let mut by_stack: FxHashMap<StackId, Option<SymbolId>> = FxHashMap::default();
    for block in device.device().blocks() {
        if let Some(dtype) = by_address.get(&block.address).filter(|_| block.state == BlockState::ActiveAllocated) {
            let known = by_stack.entry(block.extended_stack).or_insert(Some(*dtype));
            *known = known.filter(|known| known == dtype);
        }
    }
    by_stack
}

impl<'s, 'a> RecordedProgram<'s, 'a> {
    /// `None` if the trace of `device` is too long to replay changes to its program by default.
    pub(super) fn by_default(device: DeviceStudy<'s, 'a>) -> Option<Self> {
        is_tried_by_default(device).then(|| Self::from_device(device))
    }

    /// `device` has a trace.
    pub(crate) fn from_device(device: DeviceStudy<'s, 'a>) -> Self {
        let forecast = Forecast::from_device(device, ForecastLength::OneMore);
        let continued = forecast.as_ref().filter(|forecast| forecast.has_one_more());
        let program = continued.map_or_else(|| device.program(), |forecast| &forecast.program);
        let sources: Vec<u32> = continued
            .map_or_else(|| (0..to_u32(program.operations.len())).collect(), |forecast| forecast.sources.clone());
        let entry_indexes = sources.iter().map(|op| program.operations[*op as usize].entry_index).collect();
        let recorded_ops = sources.iter().zip(0..).take_while(|(source, op)| *source == op).count();
        let script = Script::from_program(program);
        let settings = &device.inferred().hypothesis.settings;
        let peak = script.peak(|block| round_size(script.blocks[block as usize].bytes, settings));
        let (categories, dtypes) = (OnceLock::new(), OnceLock::new());
        Self { device, forecast, script, entry_indexes, recorded_ops, peak, categories, dtypes }
    }

    /// The same program with other bytes of each block. Each block keeps its category.
    pub(crate) fn resized(&self, bytes: &[u64]) -> Self {
        self.categorized(); // by the recorded sizes
        let mut resized = self.clone();
        for (block, bytes) in resized.script.blocks.iter_mut().zip(bytes) {
            block.bytes = *bytes;
        }
        resized.peak = resized.script.peak(|block| resized.rounded_bytes(block));
        resized
    }

    /// The operations that [`Self::script`] edits.
    pub(crate) fn program(&self) -> &Program<'a> {
        let continued = self.forecast.as_ref().filter(|forecast| forecast.has_one_more());
        continued.map_or_else(|| self.device.program(), |forecast| &forecast.program)
    }

    /// The stack that allocated `block`, with its autograd node and `torch.compile` region.
    pub(crate) fn allocation_stack(&self, block: u32) -> StackId {
        let block = &self.script.blocks[block as usize];
        match block.allocated_at {
            Some(op) => self.device.device().entry(self.entry_index_of(op)).extended_stack,
            None => block.stack,
        }
    }

    /// The source line of `op`.
    pub(crate) fn line_of(&self, op: u32) -> LineId {
        self.device.stacks().line_id(self.device.device().entry(self.entry_index_of(op)).extended_stack)
    }

    /// The trace entry of `op`, which has its stack and phase.
    pub(crate) fn entry_index_of(&self, op: u32) -> usize {
        self.entry_indexes[op as usize] as usize
    }

    /// Whether `op` is recorded, not predicted.
    pub(super) fn is_recorded(&self, op: u32) -> bool {
        (op as usize) < self.recorded_ops
    }

    /// Whether the operations go on beyond the trace.
    pub(crate) fn is_continued(&self) -> bool {
        self.recorded_ops < self.entry_indexes.len()
    }

    /// The training step of `op`. Operations beyond the trace repeat the last step, so they count as the next one.
    pub(crate) fn step_at(&self, op: u32) -> Option<u32> {
        let step = self.device.phases().steps.step_at(self.entry_index_of(op))?;
        Some(step + u32::from(!self.is_recorded(op)))
    }

    /// Whether `block` is live after the end of step `step`.
    pub(crate) fn outlives_step(&self, block: &ScriptBlock, step: u32) -> bool {
        block.freed_at.and_then(|op| self.step_at(op)).is_none_or(|freed_in| freed_in > step)
    }

    /// Whether the recording shows where training steps begin.
    pub(crate) fn has_steps(&self) -> bool {
        self.device.phases().steps.marker().is_some()
    }

    /// The category of each block.
    pub(crate) fn categories(&self) -> &[Category] {
        &self.categorized().0
    }

    /// Whether the category of `block` is a guess.
    pub(crate) fn is_guess(&self, block: u32) -> bool {
        self.categorized().1[block as usize] == Confidence::Low
    }

    fn categorized(&self) -> &Categories {
        self.categories.get_or_init(|| self.categorize())
    }

    fn categorize(&self) -> Categories {
        let trace = self.device.device();
        let mut allocation_rows: FxHashMap<u32, usize> = FxHashMap::default();
        let mut rows_by_stack: FxHashMap<StackId, usize> = FxHashMap::default();
        let mut allocations = Vec::new();
        for (index, block) in self.script.blocks.iter().enumerate() {
            let freed_at = block.freed_at.and_then(|op| self.recorded_entry(op));
            let bytes = self.rounded_bytes(to_u32(index));
            let initial = self.program().initial_blocks.get(index).map(|initial| (initial.addr, block.stack));
            let allocated_at = self.recorded_request(block);
            let requested = allocated_at.map(|entry| {
                let entry = trace.entry(entry as usize);
                (entry.addr, entry.extended_stack)
            });
            // Failed requests and repetitions beyond the trace have no recorded address.
            let Some((address, extended_stack)) = initial.or(requested) else { continue };
            if let Some(born) = allocated_at {
                allocation_rows.insert(born, allocations.len());
            }
            rows_by_stack.insert(block.stack, allocations.len());
            let (requested_bytes, freed_after) = (block.bytes, freed_at.map(|entry| entry.saturating_add(1)));
            let allocation = Allocation { address, bytes, requested_bytes, extended_stack, allocated_at, freed_after };
            allocations.push(allocation);
        }
        let lifetimes = BlockLives::from_trace(self.device).with_live_sets(self.device, Vec::new());
        let categorized = classify_allocations(self.device, &lifetimes, allocations.len(), &|row| allocations[row]);
        let categories = self.script.blocks.iter().enumerate().map(|(index, block)| {
            let Some(op) = block.allocated_at else {
                return categorized.get(index).copied().unwrap_or((Category::Other, Confidence::Low));
            };
            // A failed request gets the category of its stack, or that of most allocations of its phase.
            let entry = self.entry_indexes[op as usize];
            if let Some(row) = allocation_rows.get(&entry).or_else(|| rows_by_stack.get(&block.stack)) {
                return categorized[*row];
            }
            match (self.phase_at(op), self.device.phases().stack_traits(block.stack).purpose) {
                (Phase::Forward, _) => (Category::Activations, Confidence::Low),
                (Phase::Optimizer, Some(KnownPurpose::OptimizerState)) => (Category::OptimizerState, Confidence::Low),
                (Phase::Optimizer, Some(KnownPurpose::OptimizerStep)) => (Category::Temporaries, Confidence::Medium),
                (Phase::Backward | Phase::Optimizer, _) => (Category::Temporaries, Confidence::Low),
                _ => (Category::Other, Confidence::Low),
            }
        });
        categories.unzip()
    }

    /// The type of the elements of `block`, such as `float32`, if the recorder saw the block or another that the same
    /// stack allocated.
    pub(crate) fn dtype(&self, block: u32) -> Option<&'a str> {
        let found = self.dtypes.get_or_init(|| dtypes_by_stack(self.device)).get(&self.allocation_stack(block))?;
        Some(self.device.snapshot().text((*found)?))
    }

    /// The blocks that the recorder saw in an autograd graph, live at the end; `None` if it did not look everywhere.
    pub(crate) fn saved_at_end(&self) -> Option<FxHashSet<u32>> {
        let names = self.device.snapshot().tensor_names.as_ref().filter(|names| names.is_complete)?;
        let saved = names.tensors.iter().filter(|tensor| tensor.kind == TensorKind::Saved);
        let saved: FxHashSet<u64> = saved.map(|tensor| tensor.address).collect();
        let saved = (0..to_u32(self.script.blocks.len())).zip(&self.script.blocks).filter(|(_, block)| {
            let address = self.recorded_request(block).map(|entry| self.device.device().entry(entry as usize).addr);
            block.freed_at.is_none() && address.is_some_and(|address| saved.contains(&address))
        });
        Some(saved.map(|(index, _)| index).collect())
    }

    /// The trace entry of `op`; `None` beyond the trace.
    fn recorded_entry(&self, op: u32) -> Option<u32> {
        self.entry_indexes[..self.recorded_ops].get(op as usize).copied()
    }

    /// The trace entry of the request for `block`, if it is recorded and was served.
    fn recorded_request(&self, block: &ScriptBlock) -> Option<u32> {
        block.allocated_at.filter(|_| !block.is_failed).and_then(|op| self.recorded_entry(op))
    }

    pub(crate) fn phase_at(&self, op: u32) -> Phase {
        self.device.phases().phase_at(self.entry_index_of(op))
    }

    /// Whether no operation of another phase lies between the two.
    pub(crate) fn is_same_phase_run(&self, allocated_at: u32, freed_at: u32) -> bool {
        let runs = self.device.phases().runs();
        let [run, later_run] = [allocated_at, freed_at]
            .map(|op| runs.partition_point(|run| run.start as usize <= self.entry_index_of(op)));
        run == later_run
    }

    /// Whether `block` is a workspace of cuBLASLt, whose size depends neither on the batch nor on the dtype: it has one
    /// of the default sizes and is freed at once.
    pub(crate) fn is_cublas_workspace(&self, block: u32) -> bool {
        let one = &self.script.blocks[block as usize];
        let is_next =
            one.allocated_at.zip(one.freed_at).is_some_and(|(allocated_at, freed_at)| freed_at == allocated_at + 1);
        is_next && GpuModel::CUBLASLT_WORKSPACE_SIZES.contains(&one.bytes)
    }

    /// The bytes of `block`, rounded by the allocator.
    pub(crate) fn rounded_bytes(&self, block: u32) -> u64 {
        let bytes = self.script.blocks[block as usize].bytes;
        round_size(bytes, &self.device.inferred().hypothesis.settings)
    }

    /// The rounded bytes of the blocks that are live at the peak and wanted.
    pub(crate) fn bytes_at_peak(&self, is_wanted: impl Fn(u32) -> bool) -> u64 {
        let blocks = self.peak.blocks.iter().filter(|block| is_wanted(**block));
        blocks.fold(0, |sum, block| sum.saturating_add(self.rounded_bytes(*block)))
    }

    /// The source line that allocated most bytes of `blocks`.
    pub(crate) fn largest_line(&self, blocks: impl Iterator<Item = u32>) -> Option<LineId> {
        let mut line_by_stack: FxHashMap<StackId, LineId> = FxHashMap::default();
        let lines = sum_by_key(blocks.map(|block| {
            let stack = self.allocation_stack(block);
            let line = line_by_stack.entry(stack).or_insert_with(|| self.device.stacks().line_id(stack));
            (*line, self.rounded_bytes(block))
        }));
        sorted_by_bytes(lines).first().map(|(line, _)| *line)
    }

    /// The program after a `change` of the blocks with `is_changed`, as `script` performs it.
    pub(super) fn changed(
        &self,
        (change, certainty): (ProgramChange, Sureness),
        description: impl Into<String>,
        is_changed: impl Fn(u32) -> bool,
        script: Script,
    ) -> ChangedProgram {
        ChangedProgram {
            change,
            certainty,
            description: description.into(),
            line: self.largest_line((0..to_u32(self.script.blocks.len())).filter(|block| is_changed(*block))),
            other_lines: Vec::new(),
            bytes_at_peak: self.bytes_at_peak(is_changed),
            script,
        }
    }

    /// The program after a `change` of the bytes of the blocks with `is_changed`.
    pub(super) fn resized_by(
        &self,
        change: (ProgramChange, Sureness),
        description: impl Into<String>,
        is_changed: impl Fn(u32) -> bool,
        resize: impl Fn(u64) -> u64,
    ) -> ChangedProgram {
        let mut script = self.script.clone();
        for (_, block) in (0..).zip(&mut script.blocks).filter(|(index, _)| is_changed(*index)) {
            block.bytes = resize(block.bytes);
        }
        self.changed(change, description, is_changed, script)
    }

    pub(crate) fn code_location(&self, line: Option<LineId>) -> CodeLocation {
        // A module that no code outside PyTorch calls has no line.
        line.map(|line| self.device.stacks().code_location(line)).unwrap_or_default()
    }
}

/// A forward pass and its backward pass, as ranges of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pass {
    /// Starts with the loading of its data.
    pub(super) forward: Range<u32>,
    /// Ends at the first request after the pass, so the frees in between belong to it. Empty if the recording ends in
    /// the forward pass.
    pub(super) backward: Range<u32>,
    /// The recording may end before the pass does: no request follows.
    pub(super) is_truncated: bool,
}

/// The passes of `recording`, in order. A forward pass without a backward pass counts only if it is the last one.
pub(super) fn find_passes(recording: &RecordedProgram<'_, '_>) -> Vec<Pass> {
    let requests = recording.script.ops.iter().filter(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
    let requests = requests.map(|op| (op.source, recording.phase_at(op.source)));
    split_into_passes(requests, to_u32(recording.script.ops.len()))
}

/// Splits a program of `end` operations into passes by its `requests` and their phases.
fn split_into_passes(requests: impl Iterator<Item = (u32, Phase)>, end: u32) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let (mut forward, mut backward, mut data_start) = (None, None, None);
    // The end of the program ends a backward pass, as a request of another phase does.
    for (op, phase) in requests.chain([(end, Phase::Other)]) {
        if let (Some(first), Some(start)) = (forward, backward)
            && phase != Phase::Backward
        {
            passes.push(Pass { forward: first..start, backward: start..op, is_truncated: false });
            (forward, backward) = (None, None);
        }
        match phase {
            Phase::Forward => forward = forward.or(data_start.take()).or(Some(op)),
            Phase::Data => _ = data_start.get_or_insert(op),
            Phase::Backward => {
                // Data loaded before a backward pass ends does not start the next forward pass.
                data_start = None;
                backward = backward.or(forward.map(|_| op));
            }
            _ => data_start = None,
        }
    }
    if let Some(first) = forward {
        passes.push(Pass { forward: first..end, backward: end..end, is_truncated: true });
    }
    if let Some(last) = passes.last_mut() {
        last.is_truncated |= last.backward.end == end;
    }
    passes
}

/// The index of the pass that has `op` in its forward pass.
pub(super) fn forward_pass_of(passes: &[Pass], op: u32) -> Option<usize> {
    let pass = passes.partition_point(|pass| pass.forward.start <= op).checked_sub(1)?;
    passes[pass].forward.contains(&op).then_some(pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(phases: &[Phase]) -> Vec<(Range<u32>, Range<u32>, bool)> {
        let requests = phases.iter().enumerate().map(|(at, phase)| (to_u32(at), *phase));
        let passes = split_into_passes(requests, to_u32(phases.len()));
        passes.into_iter().map(|pass| (pass.forward, pass.backward, pass.is_truncated)).collect()
    }

    #[test]
    fn passes_follow_one_another() {
        use Phase::{Backward, Data, Forward, Optimizer};
        let two = [Data, Forward, Backward, Optimizer, Forward, Backward];
        assert_eq!(ranges(&two), [(0..2, 2..3, false), (4..5, 5..6, true)]);
        // The next batch is prefetched in the middle of a pass.
        let ahead = [Forward, Data, Backward, Forward, Backward, Optimizer];
        assert_eq!(ranges(&ahead), [(0..2, 2..3, false), (3..4, 4..5, false)]);
        assert_eq!(ranges(&[Forward, Backward, Forward]), [(0..1, 1..2, false), (2..3, 3..3, true)]);
        assert_eq!(ranges(&[Backward, Optimizer]), []);
    }
}

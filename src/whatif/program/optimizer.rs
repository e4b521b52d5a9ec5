//! The optimizer: its temporaries, and its state.

use super::change::{ChangedProgram, ProgramChange, ChangeCertainty};
use super::recorded_program::RecordedProgram;
use crate::base::ids::to_u32;
use crate::replay::ops::ScriptBlock;
use crate::stacks::phases::Phase;
use crate::study::attribution::Category;

/// Tensors of fewer numbers than this keep their state as it is, in 8-bit optimizers.
const MIN_8_BIT_ELEMENTS: u64 = 4096;
/// Numbers that share a scale of 4 bytes there.
const ELEMENTS_PER_SCALE: u64 = 256;
/// Bytes of a number, as state is kept by PyTorch's optimizers.
const FLOAT_BYTES: u64 = 4;
/// Ranks that state is shared out among: those of a machine.
const RANKS: u64 = 8;
/// Directories of code that shards what optimizers keep.
const SHARDING_CODE: [&str; 3] = ["/distributed/fsdp/", "zero_redundancy_optimizer", "/deepspeed/"];

/// Without the temporaries of the optimizer's step.
pub(super) fn fuse_optimizer(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let optimizer = OptimizerBlocks::from_recording(recording);
    let what = "no temporaries in the optimizer's step (fused=True)";
    let row = || {
        let gone = ChangedSizes { state: &|it| it.bytes, temporary: &|_| 0 };
        let row = optimizer.change_sizes(ProgramChange::OptimizerTemporaries, what, &|_| false, gone);
        ChangedProgram { certainty: ChangeCertainty::Exact, ..row }
    };
    optimizer.temporaries.contains(&true).then(row).into_iter().collect()
}

/// With the optimizer's state in 8 bits, and shared out among ranks.
pub(super) fn shrink_state(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let optimizer = OptimizerBlocks::from_recording(recording);
    let in_8_bits = |block: &ScriptBlock| match block.bytes / FLOAT_BYTES {
        few if few < MIN_8_BIT_ELEMENTS => block.bytes,
        numbers => numbers.saturating_add(numbers.div_ceil(ELEMENTS_PER_SCALE).saturating_mul(FLOAT_BYTES)),
    };
    let what = "the optimizer's state in 8 bits";
    let sizes = ChangedSizes { state: &in_8_bits, temporary: &|_| 0 };
    let mut rows = optimizer.change_state(ProgramChange::State8Bit, what, sizes);
    if !is_sharded(recording) {
        let what = format!("the optimizer's state shared out among {RANKS} ranks");
        let part = |block: &ScriptBlock| block.bytes.div_ceil(RANKS);
        let sizes = ChangedSizes { state: &part, temporary: &part };
        rows.extend(optimizer.change_state(ProgramChange::StateSharded, &what, sizes));
    }
    rows
}

/// With the optimizer's state on the host.
pub(super) fn offload_state(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let what = "the optimizer's state on the host";
    let sizes = ChangedSizes { state: &|_| 0, temporary: &|_| 0 };
    OptimizerBlocks::from_recording(recording).change_state(ProgramChange::StateOffloaded, what, sizes)
}

/// The bytes of what optimizers make, in a program that is changed.
#[derive(Clone, Copy)]
struct ChangedSizes<'f> {
    state: &'f dyn Fn(&ScriptBlock) -> u64,
    /// Of what a step makes and is done with.
    temporary: &'f dyn Fn(&ScriptBlock) -> u64,
}

/// What optimizers make.
struct OptimizerBlocks<'r, 's, 'a> {
    recording: &'r RecordedProgram<'s, 'a>,
    /// Of each block, whether a step makes it and is done with it.
    temporaries: Vec<bool>,
}

impl<'r, 's, 'a> OptimizerBlocks<'r, 's, 'a> {
    fn from_recording(recording: &'r RecordedProgram<'s, 'a>) -> Self {
        Self { recording, temporaries: find_temporaries(recording) }
    }

    /// The program with state of other `sizes`, where it has any.
    fn change_state(&self, change: ProgramChange, what: &str, sizes: ChangedSizes<'_>) -> Vec<ChangedProgram> {
        let purposes = self.recording.categories();
        let is_state = |block: u32| purposes[block as usize] == Category::OptimizerState;
        let row = || self.change_sizes(change, what, &is_state, sizes);
        purposes.contains(&Category::OptimizerState).then(row).into_iter().collect()
    }

    /// The program with other `sizes` of temporaries, and of state, which `is_one`.
    fn change_sizes(
        &self,
        change: ProgramChange,
        what: &str,
        is_one: &dyn Fn(u32) -> bool,
        sizes: ChangedSizes<'_>,
    ) -> ChangedProgram {
        let recording = self.recording;
        let is_temporary = |block: u32| self.temporaries[block as usize];
        let mut script = recording.script.clone();
        for (number, block) in script.blocks.iter_mut().enumerate() {
            if is_temporary(to_u32(number)) {
                block.bytes = (sizes.temporary)(block);
            } else if is_one(to_u32(number)) {
                block.bytes = (sizes.state)(block);
            }
        }
        let is_changed = |block: u32| is_one(block) || is_temporary(block);
        let all = 0..to_u32(recording.script.blocks.len());
        ChangedProgram {
            change,
            certainty: ChangeCertainty::Guess,
            description: what.to_owned(),
            line: recording.largest_line(all.filter(|block| is_changed(*block))),
            bytes_at_peak: recording.bytes_at_peak(is_changed),
            script,
        }
    }
}

/// Of each block, whether a step of an optimizer makes it and is done with it.
fn find_temporaries(recording: &RecordedProgram<'_, '_>) -> Vec<bool> {
    let is_one = |block: &ScriptBlock| {
        let (Some(asked), Some(freed)) = (block.allocated_at, block.freed_at) else { return false };
        // The step is over where anything else is asked for.
        recording.phase_at(asked) == Phase::Optimizer
            && recording.device.phases().stack_traits(block.stack).phase == Some(Phase::Optimizer)
            && recording.is_same_phase_run(asked, freed)
    };
    recording.script.blocks.iter().map(is_one).collect()
}

/// Whether code that shards state is among the stacks.
fn is_sharded(recording: &RecordedProgram<'_, '_>) -> bool {
    let snapshot = recording.device.snapshot();
    snapshot.stacks.all_frames().any(|frame| {
        let file = snapshot.text(frame.file);
        SHARDING_CODE.iter().any(|part| file.contains(part))
    })
}

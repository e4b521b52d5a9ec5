//! Changes to the optimizer: no temporaries, smaller or offloaded state.

use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange};
use crate::base::ids::to_u32;
use crate::base::units::ratio;
use crate::replay::ops::{ScriptBlock, ScriptOpKind};
use crate::stacks::phases::Phase;
use crate::study::attribution::Category;
use crate::whatif::sureness::Sureness;

/// 8-bit optimizers (bitsandbytes) keep the state of smaller tensors in 32 bits.
const MIN_8_BIT_ELEMENTS: u64 = 4096;
/// Elements that share a scale of [`FLOAT_BYTES`] in 8-bit optimizers.
const ELEMENTS_PER_SCALE: u64 = 256;
/// Bytes of an element of the state that PyTorch's optimizers keep.
const FLOAT_BYTES: u64 = 4;
/// Ranks to shard the state across if the job is one process: the GPUs of a usual machine.
const RANKS: u64 = 8;
/// With more than one rank, state below this multiple of the parameters may be a shard: Adam's is twice their size.
const MIN_WHOLE_STATE: f64 = 1.8;
/// Paths of code that shards optimizer state.
const SHARDING_CODE: [&str; 3] = ["/distributed/fsdp/", "zero_redundancy_optimizer", "/deepspeed/"];

/// Removes the temporaries of the optimizer's step.
pub(super) fn fuse_optimizer(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let optimizer = OptimizerBlocks::from_recording(recording);
    let description = "fuse the optimizer (fused=True)";
    let build = || {
        let sizes = ChangedSizes { state: &|it| it.bytes, temporary: &|_| 0 };
        let changed = optimizer.change_sizes(ProgramChange::OptimizerTemporaries, description, &|_| false, sizes);
        ChangedProgram { certainty: Sureness::Checked, ..changed }
    };
    optimizer.temporaries.contains(&true).then(build).into_iter().collect()
}

/// Keeps the optimizer's state in 8 bits, or shards it across ranks.
pub(super) fn shrink_state(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let optimizer = OptimizerBlocks::from_recording(recording);
    let state_in_8_bits = |block: &ScriptBlock| match block.bytes / FLOAT_BYTES {
        small if small < MIN_8_BIT_ELEMENTS => block.bytes,
        elements => elements.saturating_add(elements.div_ceil(ELEMENTS_PER_SCALE).saturating_mul(FLOAT_BYTES)),
    };
    let description = "use an 8-bit optimizer";
    let sizes = ChangedSizes { state: &state_in_8_bits, temporary: &|_| 0 };
    let in_8_bits = optimizer.change_state(ProgramChange::State8Bit, description, sizes);
    let ranks = world_size(recording);
    in_8_bits.into_iter().chain(shard_state(recording, if ranks > 1 { ranks } else { RANKS })).collect()
}

/// Shards the optimizer's state across `ranks`, unless it is sharded already.
fn shard_state(recording: &RecordedProgram<'_, '_>, ranks: u64) -> Option<ChangedProgram> {
    if is_sharded(recording) {
        return None;
    }
    let description = format!("shard optimizer state over {ranks} ranks");
    let shard_bytes = |block: &ScriptBlock| block.bytes.div_ceil(ranks);
    let sizes = ChangedSizes { state: &shard_bytes, temporary: &shard_bytes };
    let optimizer = OptimizerBlocks::from_recording(recording);
    optimizer.change_state(ProgramChange::StateSharded, &description, sizes).into_iter().next()
}

/// Keeps the optimizer's state on the host.
pub(super) fn offload_state(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let description = "offload optimizer state to the host";
    let sizes = ChangedSizes { state: &|_| 0, temporary: &|_| 0 };
    OptimizerBlocks::from_recording(recording).change_state(ProgramChange::StateOffloaded, description, sizes)
}

/// The bytes of the optimizer's blocks in the changed program.
#[derive(Clone, Copy)]
struct ChangedSizes<'f> {
    state: &'f dyn Fn(&ScriptBlock) -> u64,
    /// For blocks that live only within a step of the optimizer.
    temporary: &'f dyn Fn(&ScriptBlock) -> u64,
}

struct OptimizerBlocks<'r, 's, 'a> {
    recording: &'r RecordedProgram<'s, 'a>,
    /// For each block, whether it lives only within a step of the optimizer.
    temporaries: Vec<bool>,
}

impl<'r, 's, 'a> OptimizerBlocks<'r, 's, 'a> {
    fn from_recording(recording: &'r RecordedProgram<'s, 'a>) -> Self {
        Self { recording, temporaries: find_temporaries(recording) }
    }

    /// The program with changed sizes of optimizer state, if it has such state.
    fn change_state(&self, change: ProgramChange, description: &str, sizes: ChangedSizes<'_>) -> Vec<ChangedProgram> {
        let categories = self.recording.categories();
        let is_state = |block: u32| categories[block as usize] == Category::OptimizerState;
        let build = || self.change_sizes(change, description, &is_state, sizes);
        categories.contains(&Category::OptimizerState).then(build).into_iter().collect()
    }

    /// The program with changed sizes of temporaries and of the blocks that `is_state` selects.
    fn change_sizes(
        &self,
        change: ProgramChange,
        description: &str,
        is_state: &dyn Fn(u32) -> bool,
        sizes: ChangedSizes<'_>,
    ) -> ChangedProgram {
        let recording = self.recording;
        let is_temporary = |block: u32| self.temporaries[block as usize];
        let mut script = recording.script.clone();
        for (index, block) in script.blocks.iter_mut().enumerate() {
            if is_temporary(to_u32(index)) {
                block.bytes = (sizes.temporary)(block);
            } else if is_state(to_u32(index)) {
                block.bytes = (sizes.state)(block);
            }
        }
        let is_changed = |block: u32| is_state(block) || is_temporary(block);
        recording.changed((change, Sureness::Estimate), description, is_changed, script)
    }
}

/// For each block, whether it lives only within a step of the optimizer.
pub(super) fn find_temporaries(recording: &RecordedProgram<'_, '_>) -> Vec<bool> {
    let last_request = recording.script.ops.iter().rposition(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
    let is_temporary = |(index, block): (usize, &ScriptBlock)| {
        let Some(allocated_at) = block.allocated_at else { return false }; // older than every recorded step
        // After the last request the program may have ended, which frees everything.
        let freed_at = block.freed_at.filter(|op| last_request.is_some_and(|last| (*op as usize) < last));
        let is_freed_in_step = match freed_at {
            // A request of another phase ends the step.
            Some(freed_at) => recording.is_same_phase_run(allocated_at, freed_at),
            None => recording.categories()[index] == Category::Temporaries,
        };
        is_freed_in_step
            && recording.phase_at(allocated_at) == Phase::Optimizer
            && recording.device.phases().stack_traits(block.stack).phase == Some(Phase::Optimizer)
    };
    recording.script.blocks.iter().enumerate().map(is_temporary).collect()
}

/// Whether a stack shows code that shards optimizer state.
fn is_sharded(recording: &RecordedProgram<'_, '_>) -> bool {
    let snapshot = recording.device.snapshot();
    let is_by_code = snapshot.stacks.all_frames().any(|frame| {
        let file = snapshot.text(frame.file);
        SHARDING_CODE.iter().any(|part| file.contains(part))
    });
    let bytes_of = |category: Category| {
        let blocks = recording.script.blocks.iter().zip(recording.categories());
        blocks.filter(|(_, of)| **of == category).fold(0u64, |sum, (block, _)| sum.saturating_add(block.bytes))
    };
    let state_ratio = || ratio(bytes_of(Category::OptimizerState), bytes_of(Category::Parameters));
    is_by_code || (world_size(recording) > 1 && state_ratio() < MIN_WHOLE_STATE)
}

/// The number of processes of the job; 1 if the recorder did not note it.
fn world_size(recording: &RecordedProgram<'_, '_>) -> u64 {
    let recorded = recording.device.snapshot().recorder_info.as_ref().and_then(|it| it.world_size.as_ref());
    recorded.and_then(|size| size.parse().ok()).unwrap_or(1)
}

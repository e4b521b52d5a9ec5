//! The optimizer: its temporaries, and its state.

use super::change::{Changed, ProgramChange, Sure};
use super::recording::Recording;
use crate::base::ids::row;
use crate::replay::calls::Block;
use crate::stacks::phases::Phase;
use crate::study::held::Category;

/// Tensors of fewer numbers than this keep their state as it is, in 8-bit optimizers.
const FEW: u64 = 4096;
/// Numbers that share a scale of 4 bytes there.
const SCALED: u64 = 256;
/// Bytes of a number, as state is kept by PyTorch's optimizers.
const FLOAT: u64 = 4;
/// Ranks that state is shared out among: those of a machine.
const RANKS: u64 = 8;
/// Directories of code that shards what optimizers keep.
const SHARDING: [&str; 3] = ["/distributed/fsdp/", "zero_redundancy_optimizer", "/deepspeed/"];

/// Without the temporaries of the optimizer's step.
pub(super) fn without_temporaries(recording: &Recording<'_, '_>) -> Vec<Changed> {
    let optimizer = Optimizer::of(recording);
    let what = "no temporaries in the optimizer's step (fused=True)";
    let row = || {
        let gone = Sizes { state: &|it| it.bytes, temporary: &|_| 0 };
        let row = optimizer.row(ProgramChange::OptimizerTemporaries, what, &|_| false, gone);
        Changed { sure: Sure::Exact, ..row }
    };
    optimizer.temporaries.contains(&true).then(row).into_iter().collect()
}

/// With the optimizer's state in 8 bits, and shared out among ranks.
pub(super) fn smaller_state(recording: &Recording<'_, '_>) -> Vec<Changed> {
    let optimizer = Optimizer::of(recording);
    let in_8_bits = |block: &Block| match block.bytes / FLOAT {
        few if few < FEW => block.bytes,
        numbers => numbers.saturating_add(numbers.div_ceil(SCALED).saturating_mul(FLOAT)),
    };
    let what = "the optimizer's state in 8 bits";
    let sizes = Sizes { state: &in_8_bits, temporary: &|_| 0 };
    let mut rows = optimizer.of_state(ProgramChange::State8Bit, what, sizes);
    if !is_sharded(recording) {
        let what = format!("the optimizer's state shared out among {RANKS} ranks");
        let part = |block: &Block| block.bytes.div_ceil(RANKS);
        let sizes = Sizes { state: &part, temporary: &part };
        rows.extend(optimizer.of_state(ProgramChange::StateSharded, &what, sizes));
    }
    rows
}

/// With the optimizer's state on the host.
pub(super) fn offloaded(recording: &Recording<'_, '_>) -> Vec<Changed> {
    let what = "the optimizer's state on the host";
    let sizes = Sizes { state: &|_| 0, temporary: &|_| 0 };
    Optimizer::of(recording).of_state(ProgramChange::StateOffloaded, what, sizes)
}

/// The bytes of what optimizers make, in a program that is changed.
#[derive(Clone, Copy)]
struct Sizes<'f> {
    state: &'f dyn Fn(&Block) -> u64,
    /// Of what a step makes and is done with.
    temporary: &'f dyn Fn(&Block) -> u64,
}

/// What optimizers make.
struct Optimizer<'r, 's, 'a> {
    recording: &'r Recording<'s, 'a>,
    /// Of each block, whether a step makes it and is done with it.
    temporaries: Vec<bool>,
}

impl<'r, 's, 'a> Optimizer<'r, 's, 'a> {
    fn of(recording: &'r Recording<'s, 'a>) -> Self {
        Self { recording, temporaries: temporaries(recording) }
    }

    /// The program with state of other `sizes`, where it has any.
    fn of_state(&self, change: ProgramChange, what: &str, sizes: Sizes<'_>) -> Vec<Changed> {
        let purposes = self.recording.purposes();
        let is_state = |block: u32| purposes[block as usize] == Category::OptimizerState;
        let row = || self.row(change, what, &is_state, sizes);
        purposes.contains(&Category::OptimizerState).then(row).into_iter().collect()
    }

    /// The program with other `sizes` of temporaries, and of state, which `is_one`.
    fn row(
        &self,
        change: ProgramChange,
        what: &str,
        is_one: &dyn Fn(u32) -> bool,
        sizes: Sizes<'_>,
    ) -> Changed {
        let recording = self.recording;
        let is_temporary = |block: u32| self.temporaries[block as usize];
        let mut script = recording.script.clone();
        for (number, block) in script.blocks.iter_mut().enumerate() {
            if is_temporary(row(number)) {
                block.bytes = (sizes.temporary)(block);
            } else if is_one(row(number)) {
                block.bytes = (sizes.state)(block);
            }
        }
        let is_changed = |block: u32| is_one(block) || is_temporary(block);
        let all = 0..row(recording.script.blocks.len());
        Changed {
            change,
            sure: Sure::Guess,
            what: what.to_owned(),
            line: recording.main_line(all.filter(|block| is_changed(*block))),
            bytes_at_peak: recording.bytes_at_peak(is_changed),
            script,
        }
    }
}

/// Of each block, whether a step of an optimizer makes it and is done with it.
fn temporaries(recording: &Recording<'_, '_>) -> Vec<bool> {
    let is_one = |block: &Block| {
        let (Some(asked), Some(freed)) = (block.asked, block.freed) else { return false };
        // The step is over where anything else is asked for.
        recording.phase_of(asked) == Phase::Optimizer
            && recording.device.phases().signs_of(block.stack).phase == Some(Phase::Optimizer)
            && recording.is_one_run(asked, freed)
    };
    recording.script.blocks.iter().map(is_one).collect()
}

/// Whether code that shards state is among the stacks.
fn is_sharded(recording: &Recording<'_, '_>) -> bool {
    let snapshot = recording.device.snapshot();
    snapshot.stacks.all_frames().any(|frame| {
        let file = snapshot.text(frame.file);
        SHARDING.iter().any(|part| file.contains(part))
    })
}

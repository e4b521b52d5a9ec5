//! The optimizer: its temporaries, and its state.

use super::change::{Changed, ProgramChange, Sure};
use super::recording::Recording;
use crate::calls::Block;
use crate::held::Category;
use crate::ids::row;
use crate::phases::Phase;

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

/// Without the temporaries of the optimizer's step; with its state in 8 bits, shared out, on the host.
pub(super) fn optimizer(recording: &Recording<'_, '_>) -> Vec<Changed> {
    let mut rows = Vec::new();
    let temporaries = temporaries(recording);
    let is_temporary = |block: u32| temporaries[block as usize];
    let change = |change,
                  sure,
                  what: String,
                  is_one: &dyn Fn(u32) -> bool,
                  bytes: &dyn Fn(&Block) -> u64| {
        let mut script = recording.script.clone();
        for (number, block) in script.blocks.iter_mut().enumerate() {
            if is_temporary(row(number)) {
                block.bytes = 0;
            } else if is_one(row(number)) {
                block.bytes = bytes(block);
            }
        }
        let all = 0..row(recording.script.blocks.len());
        Changed {
            change,
            sure,
            what,
            line: recording.main_line(all.filter(|block| is_one(*block) || is_temporary(*block))),
            bytes_at_peak: recording.bytes_at_peak(|block| is_one(block) || is_temporary(block)),
            script,
        }
    };
    if temporaries.contains(&true) {
        rows.push(change(
            ProgramChange::OptimizerTemporaries,
            Sure::Exact,
            "fused=True: no temporaries in the optimizer's step".to_owned(),
            &|_| false,
            &|block| block.bytes,
        ));
    }
    let purposes = recording.purposes();
    let is_state = |block: u32| purposes[block as usize] == Category::OptimizerState;
    if !purposes.contains(&Category::OptimizerState) {
        return rows;
    }
    let in_8_bits = |block: &Block| match block.bytes / FLOAT {
        few if few < FEW => block.bytes,
        numbers => numbers.saturating_add(numbers.div_ceil(SCALED).saturating_mul(FLOAT)),
    };
    rows.push(change(
        ProgramChange::State8Bit,
        Sure::Guess,
        "the optimizer's state in 8 bits".to_owned(),
        &is_state,
        &in_8_bits,
    ));
    if !is_sharded(recording) {
        rows.push(change(
            ProgramChange::StateSharded,
            Sure::Guess,
            format!("the optimizer's state shared out among {RANKS} ranks"),
            &is_state,
            &|block| block.bytes.div_ceil(RANKS),
        ));
    }
    rows.push(change(
        ProgramChange::StateOffloaded,
        Sure::Guess,
        "the optimizer's state on the host".to_owned(),
        &is_state,
        &|_| 0,
    ));
    rows
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

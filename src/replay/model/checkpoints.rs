//! Where a program puts a private pool back into the state of a checkpoint.

use rustc_hash::FxHashSet;

use crate::base::ids::{StackId, to_u32};
use crate::snapshot::{Frame, Snapshot};

/// The stacks of `snapshot` under which the trees of CUDA graphs put a pool back into the state of a checkpoint.
pub(super) fn checkpoint_stacks(snapshot: &Snapshot) -> FxHashSet<StackId> {
    const RESTORE_FUNCTION: &str = "apply_checkpoint_execution_state_in_allocator";
    let is_named = |frame: Frame| snapshot.text(frame.name) == RESTORE_FUNCTION;
    if !snapshot.stacks.all_frames().any(is_named) {
        return FxHashSet::default();
    }
    let stacks = (0..to_u32(snapshot.stacks.len())).map(StackId);
    let is_under = |stack: &StackId| {
        let mut frames = snapshot.stacks.frames(*stack).iter();
        frames.any(|frame| is_named(snapshot.stacks.frame(*frame)))
    };
    stacks.filter(is_under).collect()
}

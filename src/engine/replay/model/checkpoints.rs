//! Where CUDA graph trees restore a private pool to a checkpoint.

use rustc_hash::FxHashSet;

use crate::base::ids::{StackId, to_u32};
use crate::snapshot::{Frame, Snapshot};

/// The stacks of `snapshot` that contain PyTorch's function for this.
pub(super) fn checkpoint_stacks(snapshot: &Snapshot) -> FxHashSet<StackId> {
    const RESTORE_FUNCTION: &str = "apply_checkpoint_execution_state_in_allocator";
    let is_restore = |frame: Frame| snapshot.text(frame.name) == RESTORE_FUNCTION;
    if !snapshot.stacks.all_frames().any(is_restore) {
        return FxHashSet::default();
    }
    let stacks = (0..to_u32(snapshot.stacks.len())).map(StackId);
    let has_function = |stack: &StackId| {
        let mut frames = snapshot.stacks.frames(*stack).iter();
        frames.any(|frame| is_restore(snapshot.stacks.frame(frame)))
    };
    stacks.filter(has_function).collect()
}

//! Completed frees: whether the trace has them, and which free is completed by its own call.

use crate::snapshot::{Action, BlockState, Device};

/// Whether the completions of frees were left out of the trace of `device`: none is there, though more
/// blocks were freed than wait in the end.
pub(crate) fn lacks_completions(device: Device<'_>) -> bool {
    let mut freed = 0;
    for index in 0..device.len() {
        match device.action(index) {
            Some(Action::FreeCompleted) => return false,
            Some(Action::FreeRequested) => freed += 1,
            _ => {}
        }
    }
    freed > device.blocks().filter(|block| block.state == BlockState::ActivePendingFree).count()
}

/// Whether the block that is freed in entry `index` of the trace is free again in the next one, by the
/// same call: one stack. A free that had to wait is completed by a later call, with that call's stack.
pub fn is_completed_at_once(device: Device<'_>, index: usize) -> bool {
    device.action(index) == Some(Action::FreeRequested)
        && device.action(index + 1) == Some(Action::FreeCompleted)
        && {
            let (free, next) = (device.entry(index), device.entry(index + 1));
            free.addr == next.addr && free.stack == next.stack
        }
}

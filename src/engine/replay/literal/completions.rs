//! Completed frees: whether the trace records them, and which frees are completed at once.

use crate::snapshot::{Action, BlockState, Device};

/// Whether the trace of `device` lacks `free_completed` entries (`skip_actions`): it has none, although more blocks
/// were freed than are pending at the end.
pub fn lacks_completions(device: Device<'_>) -> bool {
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

/// Whether the block that entry `index` frees is completed by the next entry, with the same stack. A pending free is
/// completed by a later operation, under the stack of that operation.
pub fn is_completed_at_once(device: Device<'_>, index: usize) -> bool {
    device.action(index) == Some(Action::FreeRequested) && device.action(index + 1) == Some(Action::FreeCompleted) && {
        let (free, next) = (device.entry(index), device.entry(index + 1));
        free.addr == next.addr && free.stack == next.stack
    }
}

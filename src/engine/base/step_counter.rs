//! Counts steps of work, in debug builds only: tests check with it, without a clock, that the work is proportional to the
//! file.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Steps of this thread: devices, segments and trace entries read, free blocks searched.
pub fn step_count() -> u64 {
    STEPS.get()
}

#[inline]
pub(crate) fn count_step() {
    if cfg!(debug_assertions) {
        STEPS.set(STEPS.get() + 1);
    }
}

//! How much of snapshots was read, counted in development builds alone: the tests hold work to be in proportion to the
//! file by it, without a clock.

use std::cell::Cell;

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// Devices, segments and trace entries that this thread has looked at.
pub fn reads() -> u64 {
    READS.get()
}

/// One more.
#[inline]
pub(super) fn count() {
    READS.set(READS.get() + 1);
}

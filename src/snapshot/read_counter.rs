//! Counting reads of a snapshot, in debug builds only: tests check with it, without a clock, that the work is
//! proportional to the file.

use std::cell::Cell;

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// Devices, segments and trace entries that this thread has read.
pub fn read_count() -> u64 {
    READS.get()
}

#[inline]
pub(super) fn count_read() {
    READS.set(READS.get() + 1);
}

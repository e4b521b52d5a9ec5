//! How much heap a piece of code takes at its peak, on its own thread.
//!
//! The file that uses this declares the allocator:
//! `#[global_allocator] static ALLOCATOR: peak_heap::Counting = peak_heap::Counting;`
#![allow(unsafe_code)] // an allocator is unsafe by its trait; it only counts and hands on

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with the live bytes of each thread counted.
pub struct Counting;

#[derive(Clone, Copy)]
struct Bytes {
    live: isize,
    peak: isize,
    taken: usize,
}

thread_local! {
    static BYTES: Cell<Bytes> = const { Cell::new(Bytes { live: 0, peak: 0, taken: 0 }) };
}

fn count(bytes: usize, sign: isize) {
    // A thread that is ending may have no counters left.
    let _ = BYTES.try_with(|counters| {
        let Bytes { live, peak, taken } = counters.get();
        let live = live + sign * isize::try_from(bytes).unwrap_or(isize::MAX / 2);
        let taken = if sign > 0 { taken + bytes } else { taken };
        counters.set(Bytes { live, peak: peak.max(live), taken });
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Large blocks are extended or remapped where they are; small ones do not matter here.
        count(layout.size(), -1);
        count(new_size, 1);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// What `work` returns, and the heap bytes that it held at most, in addition to those held before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.get();
    BYTES.set(Bytes { peak: before.live, ..before });
    let result = work();
    (result, usize::try_from(BYTES.get().peak - before.live).unwrap_or(0))
}

/// All the heap bytes that this thread ever took, those that it gave back included.
pub fn taken() -> usize {
    BYTES.get().taken
}

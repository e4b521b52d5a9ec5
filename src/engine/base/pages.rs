//! Page faults, which take half of the time in which a large file is read.
//!
//! Tables are in large pages: filling them faults once for 2 MiB instead of once for 4 KiB. A second core maps the pages
//! of a file before they are read.
#![allow(unsafe_code)] // advice to the system

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use super::threads;

/// Bytes that Linux maps at once when a page of a cached file is read.
const MAPPED_AT_ONCE: usize = 64 << 10;
/// A shorter file is read in less time than a thread takes to start.
const LONG_FILE: usize = 8 << 20;

/// Makes room for `more` items if that is many bytes and takes no memory before it is filled. Otherwise the table grows
/// as it is filled.
pub(crate) fn reserve<T>(table: &mut Vec<T>, more: usize) {
    #[cfg(target_os = "linux")]
    {
        const LARGE_PAGE: usize = 2 << 20;
        if more.saturating_mul(size_of::<T>()) < 4 * LARGE_PAGE || table.try_reserve(more).is_err() {
            return;
        }
        let start = table.as_mut_ptr().wrapping_add(table.len());
        let room = (table.capacity() - table.len()) * size_of::<T>();
        let unaligned = start.addr().wrapping_neg() % LARGE_PAGE;
        let len = room.saturating_sub(unaligned) / LARGE_PAGE * LARGE_PAGE;
        // SAFETY: the pages are within the allocation, and advice about them changes no content.
        unsafe { libc::madvise(start.wrapping_byte_add(unaligned).cast(), len, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (table, more);
}

/// The result of `read`, which reads `bytes` from their start.
pub(crate) fn read_mapped<T>(bytes: &[u8], read: impl FnOnce() -> T) -> T {
    if bytes.len() < LONG_FILE {
        return read();
    }
    let is_read = AtomicBool::new(false);
    let (result, ()) = threads::join(
        || {
            let result = read();
            is_read.store(true, Ordering::Relaxed);
            result
        },
        || {
            for byte in bytes.iter().step_by(MAPPED_AT_ONCE).take_while(|_| !is_read.load(Ordering::Relaxed)) {
                black_box(*byte);
            }
        },
    );
    result
}

//! Room for large tables in large pages: filling them faults once for 2 MiB instead of once for 4 KiB.
#![allow(unsafe_code)] // advice to the system

#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// Makes room for `more` items if that is many bytes and takes no memory before it is filled. Otherwise the table grows
/// as it is filled.
pub(crate) fn reserve<T>(table: &mut Vec<T>, more: usize) {
    #[cfg(target_os = "linux")]
    if more.saturating_mul(size_of::<T>()) >= 4 * LARGE_PAGE && table.try_reserve(more).is_ok() {
        advise(table);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (table, more);
}

/// Lets the room of `table` be in large pages.
pub(crate) fn advise<T>(table: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        let room = table.spare_capacity_mut().as_mut_ptr_range();
        let unaligned = room.start.addr().wrapping_neg() % LARGE_PAGE;
        let len = (room.end.addr() - room.start.addr()).saturating_sub(unaligned) / LARGE_PAGE * LARGE_PAGE;
        if len > 0 {
            // SAFETY: the pages are within the allocation, and advice about them changes no content.
            unsafe { libc::madvise(room.start.wrapping_byte_add(unaligned).cast(), len, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = table;
}

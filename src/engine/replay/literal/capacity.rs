//! The device's capacity and the process's limit, inferred from failed requests.

use std::ops::RangeInclusive;

use crate::allocator::conf::Settings;
use crate::allocator::{max_growth, segment_size};
use crate::snapshot::{Action, Device, TraceEntry};

/// Device memory available to the process: reserved bytes plus the device's free bytes when a request failed, or the
/// peak of reserved bytes if that is higher. `None` if no request failed.
pub fn inferred_capacity(device: Device<'_>, reserved_before: u64) -> Option<u64> {
    device.failed_requests().next()?;
    let mut peak = reserved_before;
    let mut capacity: Option<u64> = None;
    for_each_memory_entry(device, reserved_before, |_, entry, reserved| {
        peak = peak.max(reserved);
        if entry.action == Action::Oom {
            let available = reserved.saturating_add(entry.addr);
            capacity = Some(capacity.map_or(available, |known| known.min(available)));
        }
    });
    capacity.map(|available| available.max(peak))
}

/// The range of the process's limit, if some request failed although the device had room for it: at least what the
/// process did reserve, and less than it was refused. `None` if no failure shows a limit. `settings` returns those of
/// an entry.
pub fn inferred_limit<'s>(
    device: Device<'_>,
    settings: impl Fn(usize) -> &'s Settings,
    reserved_before: u64,
) -> Option<RangeInclusive<u64>> {
    device.failed_requests().next()?;
    let mut limit: Option<u64> = None;
    let mut peak = reserved_before;
    for_each_memory_entry(device, reserved_before, |index, entry, reserved| {
        peak = peak.max(reserved);
        if entry.action != Action::Oom {
            return;
        }
        let settings = settings(index);
        if entry.addr >= max_growth(entry.size, settings) {
            let refused = reserved.saturating_add(segment_size(entry.size, settings));
            limit = Some(limit.map_or(refused, |known| known.min(refused)));
        }
    });
    limit.map(|refused| peak..=refused.saturating_sub(1).max(peak))
}

/// Calls `visit` with every entry that changes reserved memory and every failure: its index, the entry, and the bytes
/// reserved after it.
fn for_each_memory_entry(device: Device<'_>, reserved_before: u64, mut visit: impl FnMut(usize, &TraceEntry, u64)) {
    let mut reserved = reserved_before;
    let is_visited = |action: Action| action.changes_reserved() || action == Action::Oom;
    for (index, entry) in device.entries_where(is_visited) {
        reserved = entry.reserved_after(reserved);
        visit(index, &entry, reserved);
    }
}

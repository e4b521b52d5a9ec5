//! The device's capacity and the process's limit, inferred from failed requests.

use std::ops::RangeInclusive;

use crate::allocator::conf::Settings;
use crate::allocator::{max_growth, segment_size};
use crate::snapshot::{Action, Device, TraceEntry};

/// Device memory available to the process: reserved bytes plus the device's free bytes when a request failed, or the
/// peak of reserved bytes if that is higher. `None` if no request failed.
pub fn inferred_capacity(device: Device<'_>, reserved_before: u64) -> Option<u64> {
    device.failed_requests().next()?;
    let (mut peak, mut available) = (reserved_before, u64::MAX);
    for (_, entry, reserved) in memory_entries(device, reserved_before) {
        peak = peak.max(reserved);
        if entry.action == Action::Oom {
            available = available.min(reserved.saturating_add(entry.addr));
        }
    }
    Some(available.max(peak))
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
    for (index, entry, reserved) in memory_entries(device, reserved_before) {
        peak = peak.max(reserved);
        let settings = settings(index);
        if entry.action == Action::Oom && entry.addr >= max_growth(entry.size, settings) {
            let refused = reserved.saturating_add(segment_size(entry.size, settings));
            limit = Some(limit.map_or(refused, |known| known.min(refused)));
        }
    }
    limit.map(|refused| peak..=refused.saturating_sub(1).max(peak))
}

/// Every entry that changes reserved memory and every failure: its index, the entry, and the bytes reserved after it.
fn memory_entries(device: Device<'_>, reserved_before: u64) -> impl Iterator<Item = (usize, TraceEntry, u64)> {
    let entries = device.entries_where(|action| action.changes_reserved() || action == Action::Oom);
    entries.scan(reserved_before, |reserved, (index, entry)| {
        *reserved = entry.reserved_after(*reserved);
        Some((index, entry, *reserved))
    })
}

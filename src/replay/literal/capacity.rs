//! What a recording's failed requests show of the device and of the process's limit.

use std::ops::RangeInclusive;

use crate::allocator::conf::Settings;
use crate::allocator::{max_growth, segment_size};
use crate::snapshot::{Action, Device, TraceEntry};

/// The most device memory that the recording shows to have been within reach: what was reserved, and
/// what was free besides when a request failed. `None` when no request failed: then it may be any more.
pub fn inferred_capacity(device: Device<'_>, reserved_before: u64) -> Option<u64> {
    let mut most = reserved_before;
    let mut at_failure: Option<u64> = None;
    for_each_memory_entry(device, reserved_before, |_, event, reserved| {
        most = most.max(reserved);
        if event.action == Action::Oom {
            let reach = reserved.saturating_add(event.addr);
            at_failure = Some(at_failure.map_or(reach, |known| known.min(reach)));
        }
    });
    at_failure.map(|reach| reach.max(most))
}

/// What the process was allowed to reserve, where some request failed although the device had room for
/// it: at least what it did reserve, and less than what was refused. `None` when no failure shows that
/// there was a limit.
/// `settings` are those of an entry.
pub fn inferred_limit<'s>(
    device: Device<'_>,
    settings: impl Fn(usize) -> &'s Settings,
    reserved_before: u64,
) -> Option<RangeInclusive<u64>> {
    let mut limit: Option<u64> = None;
    let mut most = reserved_before;
    for_each_memory_entry(device, reserved_before, |entry, event, reserved| {
        most = most.max(reserved);
        if event.action != Action::Oom {
            return;
        }
        let settings = settings(entry);
        if event.addr >= max_growth(event.size, settings) {
            let refused = reserved.saturating_add(segment_size(event.size, settings));
            limit = Some(limit.map_or(refused, |known| known.min(refused)));
        }
    });
    limit.map(|refused| most..=refused.saturating_sub(1).max(most))
}

/// Shows `see` every entry that moves memory, and every failure, by its index, with what is reserved after it.
fn for_each_memory_entry(device: Device<'_>, reserved_before: u64, mut see: impl FnMut(usize, &TraceEntry, u64)) {
    let mut reserved = reserved_before;
    let shows = |action: Action| action.changes_reserved() || action == Action::Oom;
    for (entry, event) in device.entries_where(shows) {
        if event.action.is_growth() {
            reserved = reserved.saturating_add(event.size);
        } else if event.action.is_shrink() {
            reserved = reserved.saturating_sub(event.size);
        }
        see(entry, &event, reserved);
    }
}

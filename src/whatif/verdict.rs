//! The verdict of the rows of a device: the best one, and the needs of the program if every row fails.

use super::outcome::{JobOutcome, NOTICEABLE_PARTS};
use super::settings_report::{Requirement, WhatIfRow};

/// The requirement of `rows` on a device of `capacity` bytes, of which `live` are live at the peak and `reserved` were
/// before the recording.
pub(super) fn requirement(rows: &[WhatIfRow], capacity: Option<u64>, [live, reserved]: [u64; 2]) -> Requirement {
    let capacity = capacity.unwrap_or(u64::MAX);
    let smallest = rows.iter().filter_map(|row| row.smallest_capacity_bytes).min();
    match smallest {
        _ if live > capacity => Requirement::LessMemory,
        _ if reserved > capacity => Requirement::EarlierRecording,
        Some(smallest) => Requirement::Capacity(smallest),
        None => Requirement::OtherSettings,
    }
}

/// The best row with which the last failed request is served. Settings that keep large blocks from small requests come last, and among
/// settings that need about the same memory the simplest wins. Only the rows count with which the program gets furthest.
pub(super) fn best(rows: &[WhatIfRow]) -> Option<&WhatIfRow> {
    let serving = || rows.iter().filter(|row| !matches!(row.then, JobOutcome::RequestFails { .. }));
    let furthest = serving().map(|row| row.then.reach()).max()?;
    let candidates = || serving().filter(|row| row.then.reach() == furthest);
    let minimum = candidates().map(|row| row.peak_reserved_bytes).min()?;
    let threshold = minimum.saturating_add(minimum / NOTICEABLE_PARTS);
    candidates().min_by_key(|row| {
        let limits_splits = row.settings.contains("max_split_size_mb");
        let options = row.settings.matches(',').count();
        (limits_splits, row.peak_reserved_bytes > threshold, options, row.peak_reserved_bytes)
    })
}

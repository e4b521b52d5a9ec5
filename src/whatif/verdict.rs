//! The verdict of the rows of a device: the best one, and the needs of the program if every row fails.

use super::outcome::JobOutcome;
use super::settings_report::{Requirement, WhatIfRow};
use super::tried::settings_order;

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

/// The best row with which the last failed request is served, by [`settings_order`] among those with which the program gets
/// furthest.
pub(super) fn best(rows: &[WhatIfRow]) -> Option<&WhatIfRow> {
    let serving = || rows.iter().filter(|row| !matches!(row.then, JobOutcome::RequestFails { .. }));
    let furthest = serving().map(|row| row.then.reach()).max()?;
    let candidates = || serving().filter(|row| row.then.reach() == furthest);
    let minimum = candidates().map(|row| row.peak_reserved_bytes).min()?;
    candidates().min_by_key(|row| settings_order(&row.settings, row.peak_reserved_bytes, minimum))
}

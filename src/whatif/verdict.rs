//! The needs of a program if requests fail in every row.

use super::settings_report::{Requirement, WhatIfRow};

/// The requirement of `rows` on a device of `capacity` bytes, of which the process may have `limit` and `live` are live at the peak and `reserved` were
/// before the recording.
pub(super) fn requirement(
    rows: &[WhatIfRow],
    capacity: Option<u64>,
    limit: Option<u64>,
    [live, reserved]: [u64; 2],
) -> Requirement {
    let capacity = capacity.unwrap_or(u64::MAX);
    let smallest = rows.iter().filter_map(|row| row.smallest_capacity_bytes).min();
    match smallest {
        _ if live > capacity => Requirement::LessMemory,
        _ if reserved > capacity => Requirement::EarlierRecording,
        Some(smallest) if smallest <= capacity && limit.is_some() => Requirement::HigherLimit(smallest),
        Some(smallest) => Requirement::Capacity(smallest),
        None => Requirement::OtherSettings,
    }
}

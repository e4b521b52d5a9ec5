//! Memory that went back to the device in mid-trace, and on whose account.

use std::ops::Range;

use super::call::Call;
use super::reader::Calls;
use crate::snapshot::Device;

/// Memory that one call gave back to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenBack {
    /// Index in the device's trace: of the request's last entry, or of the first that gave memory back.
    pub event: usize,
    /// Bytes.
    pub bytes: u64,
    /// Whether a request made room for itself so: a retry after the device refused, garbage collection,
    /// or `max_split_size_mb` at work. Otherwise the program asked for it: `empty_cache()`, or a
    /// private pool that was dropped.
    pub for_request: bool,
}

/// What was given back to `device`, which holds `reserved` bytes before its first entry.
///
/// A trace does not name `empty_cache()`. It is told from a request's own work by the stacks of the
/// entries, and where there are none by whether the device had room for the request.
pub fn given_back(device: Device<'_>, reserved: u64) -> impl Iterator<Item = GivenBack> {
    let given = move |rows: &Range<usize>| {
        let shrinking = rows.clone().map(|row| device.entry(row));
        shrinking.filter(|e| e.action.is_shrinking()).fold(0, |sum, e| e.size.saturating_add(sum))
    };
    Calls::new(device, reserved).filter_map(move |call| {
        let (rows, for_request) = match call {
            Call::Malloc { rows, boundary, .. } if rows.len() > 1 => {
                (rows, !boundary.is_some_and(|boundary| boundary.is_likely))
            }
            Call::Release { rows, .. } => (rows, false),
            _ => return None,
        };
        let bytes = given(&rows);
        let event = if for_request { rows.end - 1 } else { rows.start };
        (bytes > 0).then_some(GivenBack { event, bytes, for_request })
    })
}

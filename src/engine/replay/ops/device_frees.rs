//! Memory that went back to the device during the trace, and why.

use super::trace_ops::{TraceOp, TraceOpKind, TraceOps};
use crate::snapshot::Device;

/// Memory that one operation returned to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceFree {
    /// The last entry of the request, or the first entry of the release.
    pub entry_index: usize,
    pub bytes: u64,
    /// A request made room for itself: a retry after the device refused, garbage collection, or `max_split_size_mb`.
    /// Otherwise the program called `empty_cache()` or dropped a private pool.
    pub is_for_request: bool,
}

/// Memory returned to `device`, which holds `reserved` bytes before its first entry.
///
/// A trace has no entry for `empty_cache()`. The stacks tell it apart from a request's own work; without stacks, it is
/// assumed if the device had room for the request.
pub fn device_frees(device: Device<'_>, reserved: u64) -> impl Iterator<Item = DeviceFree> {
    let mut ops = TraceOps::new(device, reserved);
    let changing_ops = std::iter::from_fn(move || {
        ops.skip_simple_ops();
        ops.next()
    });
    changing_ops.filter_map(move |TraceOp { entries, kind }| {
        let is_for_request = match kind {
            TraceOpKind::Alloc { boundary, .. } if entries.len() > 1 => {
                !boundary.is_some_and(|boundary| boundary.is_likely)
            }
            TraceOpKind::Release { .. } => false,
            TraceOpKind::Alloc { .. } | TraceOpKind::Free { .. } | TraceOpKind::Marker => return None,
        };
        let shrinking = entries.clone().map(|index| device.entry(index)).filter(|entry| entry.action.is_shrink());
        let bytes = shrinking.fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
        let entry_index = if is_for_request { entries.end - 1 } else { entries.start };
        (bytes > 0).then_some(DeviceFree { entry_index, bytes, is_for_request })
    })
}

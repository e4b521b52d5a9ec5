//! The memory that a process of a dry run reserves on each device, by the clock of its recording.

use crate::snapshot::Action;
use crate::study::{DeviceStudy, Study};

/// The memory that a process reserves on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceUse {
    pub(super) device: u64,
    pub(super) peak_bytes: u64,
    /// Reserved bytes from each time on, in microseconds since the epoch, which the last step returns. Empty if a time
    /// is not known.
    pub(super) steps: Vec<(u64, u64)>,
}

/// The memory over time on each device of a dry run.
pub(super) fn device_uses(study: &Study<'_>) -> Vec<DeviceUse> {
    let end_us = study.snapshot().recorder_info.as_ref().and_then(|info| info.time_us);
    study.devices().map(|device| device_use(device, end_us)).collect()
}

fn device_use(device: DeviceStudy<'_, '_>, end_us: Option<u64>) -> DeviceUse {
    let mut reserved = device.history().map_or(0, |history| history.outcome.initial_totals.reserved);
    let moves = device
        .device()
        .entries_where(|action| action.is_growth() || matches!(action, Action::SegmentFree | Action::SegmentUnmap));
    let steps = moves.map(|(index, entry)| {
        reserved = if entry.action.is_growth() {
            reserved.saturating_add(entry.size)
        } else {
            reserved.saturating_sub(entry.size)
        };
        Some((device.device().time_us(index)?, reserved))
    });
    let steps: Option<Vec<(u64, u64)>> = steps.chain([end_us.map(|end_us| (end_us, 0))]).collect();
    DeviceUse {
        device: device.id(),
        peak_bytes: device.peak().reserved_bytes,
        steps: steps.filter(|steps| steps.is_sorted_by_key(|(time, _)| *time)).unwrap_or_default(),
    }
}

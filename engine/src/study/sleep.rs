//! Memory that vLLM's sleep mode has unmapped, which PyTorch goes on counting as allocated and reserved.

use serde::Serialize;

use super::DeviceStudy;
use super::attribution::{EngineMemory, memory_by_engine};
use crate::replay::literal::Tracking;
use crate::snapshot::{SleepCall, SleepChange};

/// What sleeps on a device, and when that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SleepReport {
    /// Bytes asleep at the snapshot: allocated by PyTorch's count, but not on the device.
    pub asleep_bytes: u64,
    /// The most bytes of PyTorch's segments that were on the device at once: reserved, less those asleep.
    pub peak_on_device_bytes: u64,
    /// Entry index of that peak; null if it lies before the first entry.
    pub peak_event: Option<u64>,
    /// Each time that memory was put to sleep or woken, oldest first.
    pub changes: Vec<SleepSwitch>,
}

/// The device after memory was put to sleep or woken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SleepSwitch {
    /// The call that changed it.
    pub call: SleepCall,
    /// The entry before it; null before the first.
    pub event: Option<u64>,
    /// Microseconds since the epoch.
    pub time_us: u64,
    /// Bytes asleep, by the engine's tag, such as `weights` and `kv_cache`.
    pub asleep: Vec<AsleepByTag>,
    /// All bytes asleep.
    pub asleep_bytes: u64,
    /// Bytes of PyTorch's segments that are on the device: reserved, less those asleep.
    pub on_device_bytes: u64,
    /// Live bytes by the engine that allocated them, including those asleep.
    pub allocated: Vec<EngineMemory>,
}

/// Memory asleep with one tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AsleepByTag {
    /// The tag.
    pub tag: String,
    /// Bytes.
    pub bytes: u64,
}

impl SleepReport {
    /// Replays the trace of `device`; `None` if the recorder saw no memory put to sleep.
    pub(super) fn new(device: DeviceStudy<'_, '_>) -> Option<Self> {
        let recorded = device.snapshot().recorder_info.as_ref()?.sleep.as_ref()?;
        let changes: Vec<&SleepChange> =
            recorded.changes.iter().filter(|change| change.device == device.id()).collect();
        if changes.is_empty() {
            return None;
        }
        let mut report = Self { asleep_bytes: 0, peak_on_device_bytes: 0, peak_event: None, changes: Vec::new() };
        let mut reserved = device.device().is_empty().then(|| device.memory().reserved_bytes).unwrap_or_default();
        device.replay(Tracking::Totals, |step| {
            let Some((index, _)) = step.entry else {
                // A replay may start over.
                (report.asleep_bytes, report.peak_on_device_bytes, report.peak_event) = (0, 0, None);
                report.changes.clear();
                reserved = step.tiling.totals().reserved;
                return;
            };
            let time = device.device().time_us(index);
            while let Some(change) = changes.get(report.changes.len()).filter(|next| Some(next.time_us) <= time) {
                report.add(change, index.checked_sub(1), reserved);
            }
            reserved = step.tiling.totals().reserved;
            let on_device = reserved.saturating_sub(report.asleep_bytes);
            if on_device > report.peak_on_device_bytes {
                (report.peak_on_device_bytes, report.peak_event) = (on_device, Some(index as u64));
            }
        });
        while let Some(change) = changes.get(report.changes.len()) {
            report.add(change, device.device().len().checked_sub(1), reserved);
        }
        let entry = |change: &SleepSwitch| change.event.and_then(|event| usize::try_from(event).ok());
        let allocated = memory_by_engine(device, report.changes.iter().map(entry).collect());
        for change in &mut report.changes {
            change.allocated = allocated.get(&entry(change)).cloned().unwrap_or_default();
        }
        Some(report)
    }

    /// The number of changes up to entry `event` (`None`: before the first).
    pub(crate) fn changes_until(&self, event: Option<usize>) -> usize {
        let event = event.map(|event| event as u64);
        self.changes.partition_point(|change| change.event < event)
    }

    /// Bytes asleep after entry `event`.
    pub fn asleep_at(&self, event: usize) -> u64 {
        let last = self.changes_until(Some(event)).checked_sub(1);
        last.map_or(0, |last| self.changes[last].asleep_bytes)
    }

    fn add(&mut self, change: &SleepChange, entry: Option<usize>, reserved: u64) {
        let asleep = change.asleep.iter().map(|(tag, bytes)| AsleepByTag { tag: tag.clone(), bytes: *bytes });
        self.asleep_bytes = change.bytes();
        self.changes.push(SleepSwitch {
            call: change.call,
            event: entry.map(|entry| entry as u64),
            time_us: change.time_us,
            asleep: asleep.collect(),
            asleep_bytes: self.asleep_bytes,
            on_device_bytes: reserved.saturating_sub(self.asleep_bytes),
            allocated: Vec::new(),
        });
    }
}

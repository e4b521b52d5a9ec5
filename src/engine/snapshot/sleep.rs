//! vLLM's sleep mode, as the recorder saw it: memory that is unmapped while PyTorch counts it as allocated.

use crate::base::warning::words;

/// All memory that may sleep, and when that changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedSleep {
    /// Oldest first.
    pub changes: Vec<SleepChange>,
    /// The segments that may sleep, by address.
    pub segments: Vec<SleepSegment>,
}

words! {
    /// A call of vLLM's sleep mode.
    pub enum SleepCall {
        /// Memory was unmapped
        Sleep = "sleep",
        /// Memory was mapped again
        WakeUp = "wake-up",
        /// No call: the state at the snapshot
        Snapshot = "snapshot",
    }
}

/// The memory that was asleep after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SleepChange {
    /// The call.
    pub call: SleepCall,
    /// Microseconds since the epoch.
    pub time_us: u64,
    /// Device number.
    pub device: u64,
    /// Bytes by vLLM's tag, such as `weights` and `kv_cache`.
    pub asleep: Vec<(String, u64)>,
}

/// A segment that may sleep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SleepSegment {
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// vLLM's tag.
    pub tag: String,
}

impl RecordedSleep {
    /// The changes on device `id`.
    pub(crate) fn changes_on(&self, id: u64) -> impl Iterator<Item = &SleepChange> {
        self.changes.iter().filter(move |change| change.device == id)
    }

    /// The tag of the segment with `address`.
    pub(crate) fn tag_at(&self, address: u64) -> Option<&str> {
        let after = self.segments.partition_point(|segment| segment.address <= address);
        let segment = self.segments[..after].last()?;
        (address - segment.address < segment.bytes).then_some(&*segment.tag)
    }
}

impl SleepChange {
    /// All bytes asleep.
    pub fn bytes(&self) -> u64 {
        self.asleep.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Whether memory with this tag sleeps.
    pub(crate) fn has_asleep(&self, tag: &str) -> bool {
        self.asleep.iter().any(|(asleep, _)| asleep == tag)
    }
}

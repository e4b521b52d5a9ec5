//! The gain of expandable segments, by replay, where free memory is stuck between live blocks.

use crate::allocator::conf::EXPANDABLE_SEGMENTS;
use crate::base::units::ratio;
use crate::replay::model::simulate;
use crate::study::DeviceStudy;
use crate::study::memory::MemoryReport;
use crate::whatif::{Overrides, apply_option, hypothesis_with};

/// Replay only if stranded free memory is at least this share of reserved memory.
const MIN_STRANDED_RATIO: f64 = 0.2;
/// Recommend the setting only if the peak of reserved memory falls by at least this share.
const MIN_GAIN_RATIO: f64 = 0.05;

/// A lower peak of reserved memory with expandable segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpandableGain {
    /// Free bytes that `empty_cache()` would not release, without private pools, whose graphs reuse theirs.
    pub stranded_bytes: u64,
    /// Peak of reserved bytes in the replay.
    pub peak_reserved_bytes: u64,
}

impl ExpandableGain {
    /// Replays `device` with expandable segments. `None` if little memory is stranded, if segments are expandable
    /// already, if the model does not reproduce the recording, or if little would be gained.
    pub(super) fn from_replay(device: DeviceStudy<'_, '_>, memory: &MemoryReport) -> Option<Self> {
        let private = memory.private_pools.unwrap_or_default().inactive_bytes;
        let stranded_bytes = memory.fragmentation.stranded_bytes.saturating_sub(private);
        let is_stranded = ratio(stranded_bytes, memory.reserved_bytes) >= MIN_STRANDED_RATIO;
        if !is_stranded || memory.segments.expandable.count > 0 || !device.inferred().verification.is_exact() {
            return None;
        }
        let recorded = &device.inferred().hypothesis;
        let settings = apply_option(device.snapshot(), recorded, EXPANDABLE_SEGMENTS).ok()?; // the release lacks it
        let overrides = Overrides { settings: Some(settings), ..Overrides::default() };
        let outcome = simulate(device.program(), &hypothesis_with(device, &overrides), None);
        let peak_reserved_bytes = outcome.figures().peak_reserved_bytes;
        let gain = device.peak().reserved_bytes.saturating_sub(peak_reserved_bytes);
        let is_worthwhile = ratio(gain, device.peak().reserved_bytes) >= MIN_GAIN_RATIO;
        is_worthwhile.then_some(Self { stranded_bytes, peak_reserved_bytes })
    }
}

//! The settings that a snapshot was recorded under.

use crate::conf::{Settings, option_in};
use crate::snapshot::{Action, Snapshot};
use crate::units::MIB;

/// The settings in effect, as far as the file tells; PyTorch's defaults for what it does not record
/// (everything before 2.3, where only the use of expandable segments shows in the trace).
pub fn settings_of(snapshot: &Snapshot) -> Settings {
    let mut settings = Settings::default();
    let Some(raw) = &snapshot.settings else {
        let events = &snapshot.events;
        settings.expandable_segments = snapshot.segments.iter().any(|s| s.is_expandable)
            || (0..events.len()).any(|row| events.action(row) == Some(Action::SegmentMap));
        return settings;
    };
    if let Some(max) = raw.bytes("max_split_size") {
        settings.max_split_size = max;
    }
    settings.expandable_segments = raw.flag("expandable_segments").unwrap_or(false);
    if let Some(divisions) = raw.effective.get("roundup_power2_divisions") {
        for (bucket, value) in settings.roundup_power2_divisions.iter_mut().enumerate() {
            let written = divisions.get((1u64 << bucket).to_string());
            *value = written.and_then(serde_json::Value::as_u64).unwrap_or(0);
        }
    }
    // Only the reading of "one division" of PyTorch 2.3 and before hands out such addresses.
    settings.one_division_is_exact = settings.roundup_power2_divisions.contains(&1)
        && (0..snapshot.events.len())
            .filter_map(|row| snapshot.events.get(row))
            .any(|event| event.action == Action::Alloc && event.addr % 512 != 0);
    if let Some(mib) = option_in(&raw.string, "large_segment_size_mb")
        && let Ok(mib) = mib.parse::<u64>()
    {
        settings.large_segment_size = mib.saturating_mul(MIB).max(MIB);
    }
    settings
}

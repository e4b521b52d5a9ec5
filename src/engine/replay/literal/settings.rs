//! The releases and settings that a snapshot may have been recorded under.

use crate::allocator::conf::{self, Settings, UnknownKeys};
use crate::allocator::releases::{NEWEST, OLDEST};
use crate::snapshot::{Action, Snapshot, TorchRange};

/// The minor releases of PyTorch 2 that may have written a snapshot, limited to those that oomscope knows.
pub fn candidate_releases(torch: &TorchRange) -> std::ops::RangeInclusive<u32> {
    let first = torch.first.unwrap_or(OLDEST).clamp(OLDEST, NEWEST);
    first..=torch.last.unwrap_or(NEWEST).clamp(first, NEWEST)
}

/// The settings in effect, as far as the file records them, and PyTorch's defaults for the others. Before PyTorch 2.3
/// the file records none; only the use of expandable segments shows in the trace.
pub fn recorded_settings(snapshot: &Snapshot) -> Settings {
    let mut settings = settings_for_release(snapshot, *candidate_releases(&snapshot.torch).end());
    // Only PyTorch up to 2.3, which reads "one division" its own way, allocates at such addresses.
    settings.one_division_is_exact = settings.roundup_power2_divisions.contains(&1)
        && (0..snapshot.entries.len())
            .filter_map(|index| snapshot.entries.get(index))
            .any(|entry| entry.action == Action::Alloc && entry.addr % 512 != 0);
    settings
}

/// The same, as PyTorch 2.`minor` parses the settings string.
pub fn settings_for_release(snapshot: &Snapshot, minor: u32) -> Settings {
    let Some(raw) = &snapshot.settings else {
        // Without a recorder nothing shows the options; most programs set none.
        let mut settings = parse_or_default(snapshot.settings_string().unwrap_or_default(), minor);
        settings.expandable_segments |= snapshot.segments.iter().any(|s| s.is_expandable)
            || (0..snapshot.entries.len()).any(|index| snapshot.entries.action(index) == Some(Action::SegmentMap));
        return settings;
    };
    // The string has options that are recorded nowhere else. The values recorded beside it were in effect.
    let mut settings = parse_or_default(&raw.string, minor);
    settings.max_split_size = raw.bytes("max_split_size").unwrap_or(u64::MAX);
    if let Some(expandable) = raw.flag("expandable_segments") {
        settings.expandable_segments = expandable;
    }
    if let Some(threshold) = raw.effective.get("garbage_collection_threshold").and_then(serde_json::Value::as_f64) {
        settings.garbage_collection_threshold = threshold;
    }
    if let Some(divisions) = raw.effective.get("roundup_power2_divisions") {
        for (bucket, value) in settings.roundup_power2_divisions.iter_mut().enumerate() {
            let written = divisions.get((1u64 << bucket).to_string());
            // PyTorch writes every bucket. 0 turns the rounding off, which is the default.
            *value = written.and_then(serde_json::Value::as_u64).unwrap_or(0);
        }
    }
    settings
}

/// The release that recorded the snapshot accepted the string. If `minor` rejects it, that is another release, and the
/// defaults will do.
fn parse_or_default(string: &str, minor: u32) -> Settings {
    conf::parse(string, &Settings::default(), minor, UnknownKeys::Warn)
        .or_else(|_| conf::parse("", &Settings::default(), minor, UnknownKeys::Warn))
        .map_or_else(|_| Settings::default(), |parsed| parsed.settings)
}

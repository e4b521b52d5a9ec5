//! Settings that a replay found out, where the release does not record them or the program changed them.

use serde::Serialize;

use crate::allocator::conf::Settings;
use crate::replay::model::Hypothesis;
use crate::snapshot::Snapshot;

/// Settings from an entry on, of a program that changed them as it ran.
#[derive(Debug, Clone, Serialize)]
pub struct SettingsFrom {
    /// Index of the entry from which they hold; the number of entries where nothing was asked for after.
    pub event: usize,
    /// The options that are not at their defaults, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings_string: String,
}

/// The settings of `hypothesis` from each change on, the first ones first; none if nothing changed.
pub(super) fn changes(hypothesis: &Hypothesis) -> Vec<SettingsFrom> {
    if hypothesis.later.is_empty() {
        return Vec::new();
    }
    let first = std::iter::once((0, &hypothesis.settings));
    let later = hypothesis.later.iter().map(|later| (later.from, &later.settings));
    let written = |(event, settings): (usize, &Settings)| SettingsFrom {
        event,
        settings_string: settings.options().join(","),
    };
    first.chain(later).map(written).collect()
}

/// Options in effect that the file does not record, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`. The use of
/// expandable segments shows in the trace, and a threshold is known to be there, not what it is.
pub(crate) fn found_settings(snapshot: &Snapshot, found: &Settings) -> Vec<String> {
    if snapshot.settings.is_some() {
        return Vec::new();
    }
    let Settings { max_split_size, roundup_power2_divisions, .. } = *found;
    Settings { max_split_size, roundup_power2_divisions, ..Settings::default() }.options()
}

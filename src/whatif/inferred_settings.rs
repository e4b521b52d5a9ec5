//! Settings that the replay inferred, because the release does not record them or the program changed them.

use serde::Serialize;

use crate::allocator::conf::Settings;
use crate::replay::model::Hypothesis;
use crate::snapshot::Snapshot;

/// Settings that took effect at one trace entry, of a program that changed them while it ran.
#[derive(Debug, Clone, Serialize)]
pub struct SettingsFrom {
    /// Index of the first trace entry under these settings; the number of entries if no request follows the change.
    pub event: usize,
    /// The options that are not at their defaults, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings_string: String,
}

/// The first settings of `hypothesis`, then those after each change at run time; empty if nothing changed.
pub(super) fn settings_changes(hypothesis: &Hypothesis) -> Vec<SettingsFrom> {
    if hypothesis.settings_changes.is_empty() {
        return Vec::new();
    }
    let first = std::iter::once((0, &hypothesis.settings));
    let later = hypothesis.settings_changes.iter().map(|later| (later.first_entry, &later.settings));
    let report =
        |(event, settings): (usize, &Settings)| SettingsFrom { event, settings_string: settings.options().join(",") };
    first.chain(later).map(report).collect()
}

/// Inferred options that the file does not record, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`. Expandable segments
/// are left out because the trace shows them anyway, and a garbage collection threshold because only its presence is
/// inferred, not its value.
pub(crate) fn inferred_options(snapshot: &Snapshot, inferred: &Settings) -> Vec<String> {
    if snapshot.settings.is_some() {
        return Vec::new();
    }
    let Settings { max_split_size, roundup_power2_divisions, .. } = *inferred;
    Settings { max_split_size, roundup_power2_divisions, ..Settings::default() }.options()
}

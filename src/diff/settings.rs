//! What was set otherwise: the release and the allocator's settings.

use serde::Serialize;
use serde_json::Value;

use crate::analysis::SnapshotReport;

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingChange {
    /// `torch_version`, `settings_string`, or a key of the recorded settings.
    pub key: String,
    /// Before; `null` where it is not recorded.
    pub before: Value,
    /// After; `null` where it is not recorded.
    pub after: Value,
}

/// The release, the string, and every recorded setting that differs. A setting that only one release
/// records says nothing of the other and is left out.
pub(super) fn changed(before: &SnapshotReport, after: &SnapshotReport) -> Vec<SettingChange> {
    let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
    let found = |report: &SnapshotReport| match report.found_settings.as_slice() {
        [] => Value::Null,
        found => Value::from(found.join(",")),
    };
    let named = [
        (
            "torch_version",
            Value::from(before.torch_version.as_str()),
            Value::from(after.torch_version.as_str()),
        ),
        (
            "settings_string",
            text(before.settings_string.as_deref()),
            text(after.settings_string.as_deref()),
        ),
        ("found_settings", found(before), found(after)),
    ];
    let named = named.into_iter().map(|(key, b, a)| (key.to_owned(), b, a));
    let recorded = before.settings.iter().filter_map(|(key, value)| {
        after.settings.get(key).map(|other| (key.clone(), value.clone(), other.clone()))
    });
    named
        .chain(recorded)
        .filter(|(_, before, after)| before != after)
        .map(|(key, before, after)| SettingChange { key, before, after })
        .collect()
}

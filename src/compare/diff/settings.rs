//! Compares the release and the allocator settings.

use serde::Serialize;
use serde_json::Value;

use crate::study::Study;
use crate::whatif::inferred_options;

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingChange {
    /// `torch_version`, `settings_string`, `found_settings`, or a key of the recorded settings.
    pub key: String,
    /// Value before; null if not recorded.
    pub before: Value,
    /// Value after; null if not recorded.
    pub after: Value,
}

/// All differences. A setting that only one release records is left out, because the other value is unknown.
pub(super) fn changed(before: &Study<'_>, after: &Study<'_>) -> Vec<SettingChange> {
    let release = |study: &Study<'_>| match study.scope().minor {
        Some(minor) => Value::from(format!("2.{minor}")),
        None => Value::from(study.snapshot().torch_version()),
    };
    let string = |study: &Study<'_>| {
        let raw = study.snapshot().settings.as_ref();
        raw.map_or(Value::Null, |raw| Value::from(raw.string.as_str()))
    };
    let found = |study: &Study<'_>| match inferred_options(study.snapshot(), study.settings()) {
        found if found.is_empty() => Value::Null,
        found => Value::from(found.join(",")),
    };
    let named = [
        ("torch_version", release(before), release(after)),
        ("settings_string", string(before), string(after)),
        ("found_settings", found(before), found(after)),
    ];
    let named = named.into_iter().map(|(key, b, a)| (key.to_owned(), b, a));
    let effective = |study: &Study<'_>| study.snapshot().settings.as_ref().map(|raw| raw.effective.clone());
    // Only settings that both snapshots record are compared.
    let (before, after) = (effective(before).unwrap_or_default(), effective(after).unwrap_or_default());
    let recorded = before.into_iter().filter_map(|(key, value)| {
        let other = after.get(&key)?.clone();
        Some((key, value, other))
    });
    named
        .chain(recorded)
        .filter(|(_, before, after)| before != after)
        .map(|(key, before, after)| SettingChange { key, before, after })
        .collect()
}

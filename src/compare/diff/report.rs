//! The report on all changes between two snapshots.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::device::{DeviceDiff, device_diff};
use super::steps::{ComparedMoment, DiffOptions};
use crate::analysis::warnings_of;
use crate::base::warning::{Code, Warning};
use crate::snapshot::Snapshot;
use crate::stacks::matching::FrameTable;
use crate::study::{DeviceStudy, MemoryHistory, Scope, Study};
use crate::whatif::inferred_options;

/// A snapshot with its file.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// The contents of the file.
    pub snapshot: &'a Snapshot,
    /// Path as given.
    pub path: &'a str,
}

/// A warning about one or both files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideWarning {
    /// `before`, `after` or `both`.
    pub side: &'static str,
    /// The warning.
    #[serde(flatten)]
    pub warning: Warning,
}

/// The JSON of `oomscope diff`.
#[derive(Debug, Clone, Serialize)]
#[serde(remote = "Self")]
pub struct DiffReport {
    /// Path of the snapshot before, as given.
    pub before: String,
    /// Path of the snapshot after, as given.
    pub after: String,
    /// The requested position.
    pub at: ComparedMoment,
    /// The release and the settings that differ. A recorded setting counts if both snapshots have it.
    pub settings_changed: Vec<SettingChange>,
    /// Warnings about the files.
    pub warnings: Vec<SideWarning>,
    /// Every device of either snapshot.
    pub devices: Vec<DeviceDiff>,
}

/// Compares two snapshots.
pub fn diff(before: File<'_>, after: File<'_>, options: DiffOptions) -> DiffReport {
    let scope = Scope { device: options.device, ..Scope::default() };
    let studies = [Study::new(before.snapshot, scope), Study::new(after.snapshot, scope)];
    let words = FrameTable::new([before.snapshot, after.snapshot]);
    let readers = studies.each_ref().map(Study::stacks);
    let pairs = pair_devices(&studies).into_iter();
    let devices: Vec<DeviceDiff> = pairs.map(|devices| device_diff(devices, readers, &words, options)).collect();
    DiffReport {
        before: before.path.to_owned(),
        after: after.path.to_owned(),
        at: options.at,
        settings_changed: changed(&studies[0], &studies[1]),
        warnings: warnings(&studies, options.at, &devices),
        devices,
    }
}

/// Pairs devices by number, and those that are left if they are one on each side: two ranks of a job use different ones.
fn pair_devices<'s, 'a>(studies: &'s [Study<'a>; 2]) -> Vec<[Option<DeviceStudy<'s, 'a>>; 2]> {
    let numbers: BTreeSet<u64> = studies.iter().flat_map(Study::devices).map(DeviceStudy::id).collect();
    let pairs = numbers.iter().map(|number| studies.each_ref().map(|study| study.device(*number)));
    let (mut pairs, alone): (Vec<_>, Vec<_>) = pairs.partition(|pair| pair.iter().all(Option::is_some));
    match *alone {
        [[Some(before), None], [None, Some(after)]] | [[None, Some(after)], [Some(before), None]] => {
            pairs.push([Some(before), Some(after)]);
        }
        _ => pairs.extend(alone),
    }
    pairs.sort_by_key(|pair: &[Option<DeviceStudy<'_, '_>>; 2]| pair.iter().flatten().map(|device| device.id()).min());
    pairs
}

fn warnings(studies: &[Study<'_>; 2], at: ComparedMoment, devices: &[DeviceDiff]) -> Vec<SideWarning> {
    let [before, after] = studies.each_ref().map(warnings_of);
    let is_late = studies
        .each_ref()
        .map(|study| study.devices().filter_map(DeviceStudy::history).any(MemoryHistory::is_truncated));
    let one_is_late = is_late[0] != is_late[1] && studies.iter().all(|study| !study.snapshot().entries.is_empty());
    let late = one_is_late.then(|| SideWarning {
        side: if is_late[0] { "before" } else { "after" },
        warning: Warning {
            code: Code::StartsLater,
            message: "this recording begins late and the other does not, so training steps cannot \
                      be aligned: the whole recordings are compared"
                .to_owned(),
        },
    });
    let without_peak = devices.iter().filter(|device| device.at != at).map(|device| SideWarning {
        side: "both",
        warning: Warning {
            code: Code::NoPeak,
            message: format!(
                "no peak of GPU {} is known, because not both snapshots have its history: they are compared as they \
                 were taken",
                device.device
            ),
        },
    });
    let both = before.iter().filter(|warning| after.contains(warning)).map(|w| ("both", w));
    let only_before = before.iter().filter(|w| !after.contains(w)).map(|w| ("before", w));
    let only_after = after.iter().filter(|w| !before.contains(w)).map(|w| ("after", w));
    let recorded = both.chain(only_before).chain(only_after);
    let recorded = recorded.map(|(side, warning)| SideWarning { side, warning: warning.clone() });
    recorded.chain(late).chain(without_peak).collect()
}

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
fn changed(before: &Study<'_>, after: &Study<'_>) -> Vec<SettingChange> {
    let named = [
        ("torch_version", before.snapshot().torch_version().into(), after.snapshot().torch_version().into()),
        ("settings_string", settings_string(before), settings_string(after)),
        ("found_settings", found_settings(before), found_settings(after)),
    ];
    let named = named.into_iter().map(|(key, b, a)| (key.to_owned(), b, a));
    // Only settings that both snapshots record are compared.
    let [before, after] = [before.snapshot(), after.snapshot()]
        .map(|snapshot| snapshot.settings.as_ref().map(|raw| raw.effective.clone()).unwrap_or_default());
    let recorded = before.into_iter().filter_map(|(key, value)| {
        let other = after.get(&key)?.clone();
        Some((key, value, other))
    });
    let changes = named.chain(recorded).filter(|(_, before, after)| before != after);
    changes.map(|(key, before, after)| SettingChange { key, before, after }).collect()
}

fn found_settings(study: &Study<'_>) -> Value {
    let found = inferred_options(study.snapshot(), study.settings());
    (!found.is_empty()).then(|| found.join(",")).into()
}

fn settings_string(study: &Study<'_>) -> Value {
    study.snapshot().settings.as_ref().map(|raw| raw.string.as_str()).into()
}

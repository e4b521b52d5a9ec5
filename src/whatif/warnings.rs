//! Warnings about settings and about the limits of a what-if.

use serde_json::Value;

use crate::allocator::conf::{self, Settings, UnknownKeys, find_option};
use crate::base::units::{MIB, count, counted};
use crate::base::warning::{Code, Warning};
use crate::replay::literal::candidate_releases;
use crate::snapshot::{RawSettings, Snapshot};
use crate::study::{DeviceStudy, LostHistory};

/// Whether reserved memory can grow without bound under `settings`: a free block of the maximum split size or more is
/// neither split nor handed to a smaller request, so an expandable segment maps new memory instead
/// (pytorch/pytorch#123548).
fn grows_without_bound(settings: &Settings) -> bool {
    settings.expandable_segments && settings.max_split_size != u64::MAX
}

/// Warns if `settings` are harmful together, or if one of them has no effect. `is_limited`: the process may not
/// reserve the whole device.
pub(crate) fn settings_warning(settings: &Settings, is_limited: bool) -> Option<Warning> {
    let collects = settings.garbage_collection_threshold > 0.0;
    if grows_without_bound(settings) {
        let limit = settings.max_split_size / MIB;
        return Some(Warning::new(
            Code::HarmfulSettings,
            format!(
                "expandable_segments:True with max_split_size_mb:{limit}: reserved memory can grow \
                 without bound from step to step, because a free block that large serves no \
                 smaller request; set only one of the two"
            ),
        ));
    }
    let why = match (collects, settings.expandable_segments, is_limited) {
        (true, true, _) => "expandable segments are never collected",
        (true, false, false) => {
            "nothing is collected unless the process has a limit \
             (per_process_memory_fraction, torch.cuda.set_per_process_memory_fraction)"
        }
        _ => return None,
    };
    let threshold = settings.garbage_collection_threshold;
    let message = format!("garbage_collection_threshold:{threshold} has no effect: {why}");
    Some(Warning::new(Code::IdleSetting, message))
}

/// Warns if the trace of `device` is a single entry, so that a replay shows almost nothing.
pub(crate) fn single_entry_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let lost = device.lost_history().filter(|lost| *lost == LostHistory::RingOfOne)?;
    let id = device.id();
    let message = format!("GPU {id}: {lost}; the rows below replay only that entry");
    Some(Warning::new(Code::HistoryLost, message))
}

/// Warns if the model does not reproduce the recording of `device`.
pub(crate) fn divergence_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let verification = &device.inferred().verification;
    let (matched, recorded) = (verification.matched as u64, verification.recorded as u64);
    let message = format!(
        "GPU {}: the model reproduces only {} of {}: estimates (`oomscope replay` says where and why)",
        device.id(),
        count(matched),
        counted(recorded, "entry")
    );
    verification.divergence.is_some().then(|| Warning::new(Code::ModelParted, message))
}

/// Warns if the settings of `device` changed while the program ran.
pub(crate) fn settings_changed_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let recorded = &device.inferred().hypothesis;
    let changes = counted(recorded.settings_changes.len() as u64, "time");
    (!recorded.settings_changes.is_empty()).then(|| {
        let message = format!(
            "GPU {}: the replay shows that settings changed {changes} at run time; the run as recorded follows \
             each change, other settings extend the last ones and apply from the first entry to the last",
            device.id()
        );
        Warning::new(Code::SettingsChanged, message)
    })
}

/// Describes the options of the recorded string whose recorded effective value differs, by the grammar of every
/// release that can have written the snapshot.
pub(crate) fn ineffective_options(snapshot: &Snapshot) -> Vec<String> {
    // Before PyTorch 2.3 no effective values are recorded to compare with.
    let Some(raw) = &snapshot.settings else { return Vec::new() };
    let by_release: Vec<[RecordedOption; 6]> = candidate_releases(&snapshot.torch)
        .filter_map(|minor| conf::parse(&raw.string, &Settings::default(), minor, UnknownKeys::Warn).ok())
        .map(|parsed| recorded_options(raw, &parsed.settings))
        .collect();
    let Some(options) = by_release.first() else { return Vec::new() };
    let described = options.iter().enumerate().filter_map(|(index, (name, recorded, _))| {
        let (requested, recorded) = (find_option(&raw.string, name)?, recorded.as_ref()?);
        let is_in_effect = by_release.iter().any(|options| options[index].2 == *recorded);
        (!is_in_effect)
            .then(|| format!("{name}:{requested} was set but is not in effect; the effective value is {recorded}"))
    });
    described.collect()
}

/// The name of an option whose effective value snapshots record, that value, and the value in other settings.
type RecordedOption = (&'static str, Option<String>, String);

fn recorded_options(raw: &RawSettings, settings: &Settings) -> [RecordedOption; 6] {
    let flag = |name| raw.flag(name).map(format_flag);
    let limit = raw.effective.get("max_split_size").and_then(Value::as_i64);
    let threshold = raw.effective.get("garbage_collection_threshold").and_then(Value::as_f64);
    let divisions = raw.effective.get("roundup_power2_divisions").map(|recorded| {
        let divisions_in = |bucket: u32| recorded.get((1u64 << bucket).to_string())?.as_u64();
        // A missing bucket counts as 0, which turns the rounding off.
        format_divisions((0..16).map(|bucket| divisions_in(bucket).unwrap_or(0)))
    });
    [
        ("expandable_segments", flag("expandable_segments"), format_flag(settings.expandable_segments)),
        (
            "max_split_size_mb",
            limit.map(|bytes| format_limit(bytes.try_into().ok())),
            format_limit(Some(settings.max_split_size).filter(|bytes| *bytes != u64::MAX)),
        ),
        (
            "garbage_collection_threshold",
            threshold.map(|ratio| ratio.to_string()),
            settings.garbage_collection_threshold.to_string(),
        ),
        ("roundup_power2_divisions", divisions, format_divisions(settings.roundup_power2_divisions.into_iter())),
        (
            "release_lock_on_cudamalloc",
            flag("release_lock_on_cudamalloc"),
            format_flag(settings.release_lock_on_cudamalloc),
        ),
        (
            "graph_capture_record_stream_reuse",
            flag("graph_capture_record_stream_reuse"),
            format_flag(settings.graph_capture_record_stream_reuse),
        ),
    ]
}

fn format_flag(is_set: bool) -> String {
    if is_set { "True" } else { "False" }.to_owned()
}

fn format_limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "no limit".to_owned(), |bytes| format!("{} MiB", bytes / MIB))
}

fn format_divisions(divisions: impl Iterator<Item = u64>) -> String {
    let all: Vec<u64> = divisions.collect();
    match all.as_slice() {
        [first, rest @ ..] if rest.iter().all(|d| d == first) => first.to_string(),
        _ => Value::from(all).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(string: &str) -> Settings {
        conf::parse(string, &Settings::default(), 15, UnknownKeys::Refuse).unwrap().settings
    }

    #[test]
    fn harmful_and_idle_settings_are_warned_about() {
        let code = |string: &str, is_limited| settings_warning(&parsed(string), is_limited).map(|c| c.code);
        let pair = "expandable_segments:True,max_split_size_mb:64";
        assert_eq!(code(pair, true), Some(Code::HarmfulSettings));
        assert_eq!(code("garbage_collection_threshold:0.8", false), Some(Code::IdleSetting));
        assert_eq!(code("garbage_collection_threshold:0.8", true), None);
        let both = "garbage_collection_threshold:0.8,expandable_segments:True";
        assert_eq!(code(both, true), Some(Code::IdleSetting));
        for harmless in ["", "expandable_segments:True", "max_split_size_mb:64"] {
            assert_eq!(code(harmless, false), None, "{harmless}");
        }
    }
}

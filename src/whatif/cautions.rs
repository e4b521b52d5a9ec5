//! Settings that do harm together, do nothing, or were asked for and are not in effect.

use serde_json::Value;

use crate::allocator::conf::{self, Settings, Unknown, option_in};
use crate::base::units::{MIB, count, counted};
use crate::base::warning::{Code, Warning};
use crate::replay::facts::releases;
use crate::snapshot::{RawSettings, Snapshot};
use crate::study::{DeviceStudy, LostHistory};

/// Whether reserved memory can grow without bound under `settings`: where segments are expandable, a
/// block of the maximum split size or more is neither cut nor given to a smaller request, and what lies
/// free in it is mapped again elsewhere (pytorch/pytorch#123548).
fn grows_without_bound(settings: &Settings) -> bool {
    settings.expandable_segments && settings.max_split_size != u64::MAX
}

/// What whoever sets `settings` should know; `is_limited` where the process may not reserve all of the
/// device.
pub(crate) fn caution(settings: &Settings, is_limited: bool) -> Option<Warning> {
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

/// That the trace of `device` is one entry, so that next to nothing is replayed.
pub(crate) fn one_entry(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let lost = device.lost_history().filter(|lost| *lost == LostHistory::RingOfOne)?;
    let id = device.id();
    let message = format!("device {id}: {lost}; the rows below replay that entry alone");
    Some(Warning::new(Code::HistoryLost, message))
}

/// What whoever reads a what-if of `device` should know first: the model does not reproduce its recording.
pub(crate) fn parted(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let verification = &device.inferred().verification;
    let divergence = verification.divergence.as_ref()?;
    let message = format!(
        "device {}: the model reproduces only {} of {} of this recording, so every what-if of it is an \
         estimate: {}",
        device.id(),
        count(verification.matched as u64),
        counted(verification.recorded as u64, "entry"),
        divergence.why()
    );
    Some(Warning::new(Code::ModelParted, message))
}

/// That the settings of `device` changed as the program ran, and what a what-if makes of it.
pub(crate) fn reconfigured(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let recorded = &device.inferred().hypothesis;
    let changes = counted(recorded.later.len() as u64, "time");
    (!recorded.later.is_empty()).then(|| {
        let message = format!(
            "device {}: settings change {changes} at run time, as a replay found out; as recorded, they are \
             followed; what is set instead, over the last of them, holds from the first entry to the last",
            device.id()
        );
        Warning::new(Code::SettingsChanged, message)
    })
}

/// Options of the recorded string whose recorded value is another, by the grammar of every release that
/// can have written the file.
pub(crate) fn not_in_effect(snapshot: &Snapshot) -> Vec<String> {
    let Some(raw) = &snapshot.settings else { return Vec::new() };
    let parsed: Vec<Settings> = releases(&snapshot.torch)
        .filter_map(|minor| {
            conf::parse(&raw.string, &Settings::default(), minor, Unknown::Warn).ok()
        })
        .map(|parsed| parsed.settings)
        .collect();
    if parsed.is_empty() {
        return Vec::new();
    }
    RECORDED
        .iter()
        .filter_map(|option| {
            let asked = option_in(&raw.string, option.name)?;
            let written = (option.written)(raw)?;
            let is_asked = parsed.iter().any(|settings| (option.means)(settings) == written);
            (!is_asked).then(|| {
                let name = option.name;
                format!("{name}:{asked} was set but is not in effect; in effect is {written}")
            })
        })
        .collect()
}

/// An option that files record: its value as written and as a string means it, in the same words.
struct RecordedOption {
    name: &'static str,
    written: fn(&RawSettings) -> Option<String>,
    means: fn(&Settings) -> String,
}

const RECORDED: [RecordedOption; 6] = [
    RecordedOption {
        name: "expandable_segments",
        written: |raw| raw.flag("expandable_segments").map(flag),
        means: |settings| flag(settings.expandable_segments),
    },
    RecordedOption {
        name: "max_split_size_mb",
        written: |raw| {
            raw.effective.get("max_split_size")?.as_i64().map(|bytes| limit(bytes.try_into().ok()))
        },
        means: |settings| limit(Some(settings.max_split_size).filter(|bytes| *bytes != u64::MAX)),
    },
    RecordedOption {
        name: "garbage_collection_threshold",
        written: |raw| {
            raw.effective.get("garbage_collection_threshold")?.as_f64().map(|f| f.to_string())
        },
        means: |settings| settings.garbage_collection_threshold.to_string(),
    },
    RecordedOption {
        name: "roundup_power2_divisions",
        written: |raw| {
            let recorded = raw.effective.get("roundup_power2_divisions")?;
            let of = |bucket: u32| recorded.get((1u64 << bucket).to_string())?.as_u64();
            Some(divisions((0..16).map(|bucket| of(bucket).unwrap_or(0))))
        },
        means: |settings| divisions(settings.roundup_power2_divisions.into_iter()),
    },
    RecordedOption {
        name: "release_lock_on_cudamalloc",
        written: |raw| raw.flag("release_lock_on_cudamalloc").map(flag),
        means: |settings| flag(settings.release_lock_on_cudamalloc),
    },
    RecordedOption {
        name: "graph_capture_record_stream_reuse",
        written: |raw| raw.flag("graph_capture_record_stream_reuse").map(flag),
        means: |settings| flag(settings.graph_capture_record_stream_reuse),
    },
];

fn flag(is_set: bool) -> String {
    if is_set { "True" } else { "False" }.to_owned()
}

fn limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "no limit".to_owned(), |bytes| format!("{} MiB", bytes / MIB))
}

fn divisions(of: impl Iterator<Item = u64>) -> String {
    let all: Vec<u64> = of.collect();
    match all.as_slice() {
        [first, rest @ ..] if rest.iter().all(|d| d == first) => first.to_string(),
        _ => Value::from(all).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(string: &str) -> Settings {
        conf::parse(string, &Settings::default(), 15, Unknown::Refuse).unwrap().settings
    }

    #[test]
    fn each_caution_has_its_reason() {
        let code = |string: &str, is_limited| caution(&parsed(string), is_limited).map(|c| c.code);
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

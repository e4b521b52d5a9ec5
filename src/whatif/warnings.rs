//! Warnings about settings and about the limits of a what-if.

use crate::allocator::conf::Settings;
use crate::base::units::{MIB, count, counted};
use crate::base::warning::{Code, Warning};
use crate::study::{DeviceStudy, LostHistory};

/// Warns if `settings` are harmful together, or if one of them has no effect. `is_limited`: the process may not
/// reserve the whole device.
pub(crate) fn settings_warning(settings: &Settings, is_limited: bool) -> Option<Warning> {
    let collects = settings.garbage_collection_threshold > 0.0;
    // A free block of the maximum split size or more is neither split nor handed to a smaller request, so an expandable
    // segment maps new memory instead (pytorch/pytorch#123548).
    if settings.expandable_segments && settings.max_split_size != u64::MAX {
        let limit = settings.max_split_size / MIB;
        let message = format!(
            "expandable_segments:True with max_split_size_mb:{limit}: reserved memory can grow without bound from \
             step to step, because a free block that large serves no smaller request; set only one of the two"
        );
        return Some(Warning::new(Code::HarmfulSettings, message));
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
pub(super) fn single_entry_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let lost = device.lost_history().filter(|lost| *lost == LostHistory::RingOfOne)?;
    let id = device.id();
    let message = format!("GPU {id}: {lost}; the rows below replay only that entry");
    Some(Warning::new(Code::HistoryLost, message))
}

/// Warns if the model does not reproduce the recording of `device`.
pub(super) fn divergence_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
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
pub(super) fn settings_changed_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::conf::{UnknownKeys, parse};

    fn parsed(string: &str) -> Settings {
        parse(string, &Settings::default(), 15, UnknownKeys::Refuse).unwrap().settings
    }

    fn code(string: &str, is_limited: bool) -> Option<Code> {
        settings_warning(&parsed(string), is_limited).map(|warning| warning.code)
    }

    #[test]
    fn harmful_and_idle_settings_are_warned_about() {
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

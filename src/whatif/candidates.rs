//! The settings that every search for better ones tries.

use super::overrides::apply_option;
use super::warnings::settings_warning;
use crate::allocator::conf::{EXPANDABLE_SEGMENTS, Settings};
use crate::study::DeviceStudy;

/// Options that are tried at their default first: where one is recorded, it may be what wastes memory.
const REMOVED: [&str; 2] = ["max_split_size_mb", "roundup_power2_divisions"];

/// The first of those that lead to equal settings is tried.
const TRIED: [&str; 21] = [
    EXPANDABLE_SEGMENTS,
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:False",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "max_split_size_mb:1024",
    "max_split_size_mb:64,roundup_power2_divisions:8",
    "max_split_size_mb:128,roundup_power2_divisions:8",
    "max_split_size_mb:256,roundup_power2_divisions:8",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.98",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
    "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
    "default",
];

/// Settings to try.
pub(crate) struct Candidate {
    /// The change to the recorded settings, in the syntax of `oomscope whatif --set`.
    pub(crate) option: String,
    /// The settings, and their string.
    pub(crate) settings: (Settings, String),
}

/// The settings that the release of `device` has, each once, if they differ from the recorded ones, are neither harmful nor
/// idle, and affect requests of the program's sizes.
pub(crate) fn candidates(device: DeviceStudy<'_, '_>) -> Vec<Candidate> {
    let recorded = &device.inferred().hypothesis;
    let last = recorded.last_settings();
    let removed = REMOVED.iter().map(|key| format!("{key}:default"));
    let tried = TRIED.iter().map(|option| {
        let mut option = (*option).to_owned();
        if option.starts_with(EXPANDABLE_SEGMENTS) {
            // Expandable segments are tried without the options that are harmful or idle beside them.
            let beside = [
                ("max_split_size_mb", last.max_split_size != u64::MAX),
                ("garbage_collection_threshold", last.garbage_collection_threshold > 0.0),
            ];
            let recorded = beside.iter().filter(|(_, is_recorded)| *is_recorded);
            option.extend(recorded.map(|(key, _)| format!(",{key}:default")));
        }
        option
    });
    let mut candidates: Vec<Candidate> = Vec::new();
    for option in removed.chain(tried) {
        let Ok(settings) = apply_option(device.snapshot(), recorded, &option) else { continue };
        let is_new = candidates.iter().all(|known| known.settings.0 != settings.0);
        if is_new && has_use(&settings.0, device) {
            candidates.push(Candidate { option, settings });
        }
    }
    candidates
}

fn has_use(settings: &Settings, device: DeviceStudy<'_, '_>) -> bool {
    let max_split_size = settings.max_split_size;
    let recorded = &device.inferred().hypothesis;
    (!recorded.settings_changes.is_empty() || *settings != recorded.settings)
        && settings_warning(settings, true).is_none()
        && (max_split_size == u64::MAX || device.program().largest_request() >= max_split_size)
}

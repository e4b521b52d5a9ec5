//! Settings that are tried by default.

use crate::allocator::conf::EXPANDABLE_SEGMENTS;

/// Tried for every failure and in every search.
pub(crate) const COMMON_SETTINGS: [&str; 15] = [
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
    "max_split_size_mb:128,roundup_power2_divisions:8",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
    "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
];
/// Tried in addition to them in an explicit search: values in between.
pub(super) const EXTRA_SETTINGS: [&str; 5] = [
    "max_split_size_mb:64,roundup_power2_divisions:8",
    "max_split_size_mb:256,roundup_power2_divisions:8",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:16",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.98",
];
/// Resets all recorded options.
pub(crate) const DEFAULT_SETTINGS: &str = "default";

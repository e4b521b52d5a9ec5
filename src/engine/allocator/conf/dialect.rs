//! The differences between releases of PyTorch in parsing the settings string, and the error of a string, worded as the
//! newest PyTorch does.

use std::fmt;

use OptionMeaning::{
    Backend, Divisions, Flag, Fraction, GarbageCollection, Ignored, LargeSegmentSize, MaxNonSplitRounding,
    MaxSplitSize, Reserve,
};

use super::settings::Settings;
use crate::allocator::releases::{Rule, has_rule};

/// PyTorch rejects the settings string.
///
/// Displays PyTorch's message, with a hint in parentheses if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfError {
    message: String,
    help: Option<String>,
}

impl ConfError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    pub(super) fn with_help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }

    /// The text of the Python exception, without the part about PyTorch's source.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.trim_end();
        match &self.help {
            None => f.write_str(message),
            Some(help) => write!(f, "{} ({help})", message.trim_end_matches('.')),
        }
    }
}

impl std::error::Error for ConfError {}

/// The setting that an option changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum OptionMeaning {
    /// True or False, for this setting.
    Flag(fn(&mut Settings) -> &mut bool),
    LargeSegmentSize,
    MaxSplitSize,
    MaxNonSplitRounding,
    GarbageCollection,
    Divisions,
    Backend,
    Fraction,
    Reserve,
    /// None: it is about pinned host memory, or about the class of a stream, which no snapshot records. Its value is not
    /// checked.
    Ignored,
}

/// One option of the string.
#[derive(Debug)]
pub(super) struct KnownOption {
    pub(super) key: &'static str,
    /// The first minor release of PyTorch 2 that has it.
    since: u32,
    pub(super) meaning: OptionMeaning,
    /// Whether the parser shared by all accelerators reads it, or the one for CUDA.
    pub(super) is_shared: bool,
}

const fn option(key: &'static str, since: u32, meaning: OptionMeaning) -> KnownOption {
    KnownOption { key, since, meaning, is_shared: false }
}

impl KnownOption {
    const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }
}

/// All options of all supported releases.
pub(super) static OPTIONS: [KnownOption; 22] = [
    option("max_split_size_mb", 1, MaxSplitSize).shared(),
    option("garbage_collection_threshold", 1, GarbageCollection).shared(),
    option("roundup_power2_divisions", 1, Divisions).shared(),
    option("expandable_segments", 1, Flag(|settings| &mut settings.expandable_segments)).shared(),
    option("max_non_split_rounding_mb", 6, MaxNonSplitRounding).shared(),
    option("large_segment_size_mb", 11, LargeSegmentSize).shared(),
    option("backend", 1, Backend),
    option("release_lock_on_cudamalloc", 2, Flag(|settings| &mut settings.release_lock_on_cudamalloc)),
    option("release_lock_on_hipmalloc", 2, Flag(|settings| &mut settings.release_lock_on_cudamalloc)),
    option("graph_capture_record_stream_reuse", 9, Flag(|settings| &mut settings.graph_capture_record_stream_reuse)),
    option("per_process_memory_fraction", 10, Fraction),
    option("throw_on_cudamalloc_oom", 12, Flag(|settings| &mut settings.throw_on_cudamalloc_oom)),
    option("expandable_segments_reserve", 15, Reserve),
    option("expandable_segments_reserve_by_class", 15, Ignored),
    option("pinned_use_cuda_host_register", 2, Ignored),
    option("pinned_use_hip_host_register", 2, Ignored),
    option("pinned_num_register_threads", 2, Ignored),
    option("pinned_use_background_threads", 6, Ignored).shared(),
    option("pinned_reserve_segment_size_mb", 10, Ignored),
    option("pinned_free_catch_all", 12, Ignored),
    option("pinned_max_round_threshold_mb", 13, Ignored).shared(),
    option("pinned_max_cached_size_mb", 13, Ignored).shared(),
];

/// The minor release that introduced option `key`; `None` if no release has it.
pub fn option_since(key: &str) -> Option<u32> {
    Dialect::find_option(key).map(|option| option.since)
}

/// The parser's rules in PyTorch 2.`minor`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    pub(super) minor: u32,
}

impl Dialect {
    pub(super) fn has(self, rule: Rule) -> bool {
        has_rule(self.minor, rule)
    }

    /// Option `key` of any release.
    pub(super) fn find_option(key: &str) -> Option<&'static KnownOption> {
        OPTIONS.iter().find(|option| option.key == key)
    }

    pub(super) fn has_option(self, option: &KnownOption) -> bool {
        option.since <= self.minor
    }

    /// PyTorch's error for a `key` that this release does not have. `parser` is the part that reports it.
    pub(super) fn unrecognized_key(self, key: &str, parser: &str) -> ConfError {
        let message = format!("Unrecognized key '{key}' in {parser} allocator config.");
        ConfError::new(message).with_help(self.help_for_key(key))
    }

    /// A hint for a `key` that this release does not have: its first release, or a similar key.
    pub(super) fn help_for_key(self, key: &str) -> Option<String> {
        if let Some(since) = option_since(key) {
            return Some(format!("this option exists since PyTorch 2.{since}"));
        }
        let close = key.chars().count() / 4;
        let known = OPTIONS.iter().filter(|option| self.has_option(option));
        let nearest = known.map(|option| (strsim::levenshtein(key, option.key), option.key)).min();
        nearest.filter(|(distance, _)| *distance <= close).map(|(_, near)| format!("did you mean {near}?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_the_release_or_a_similar_key() {
        for (key, help) in [
            ("max_split_size", Some("did you mean max_split_size_mb?")),
            ("expandable_segment", Some("did you mean expandable_segments?")),
            ("large_segment_size_mb", Some("this option exists since PyTorch 2.11")),
            ("foo", None),
        ] {
            assert_eq!(Dialect { minor: 9 }.help_for_key(key).as_deref(), help);
        }
    }
}

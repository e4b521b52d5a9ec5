//! The differences between releases of PyTorch in parsing the settings string.

use super::error::ConfError;
use crate::allocator::releases::{Rule, has_rule, option_since};

/// The setting that an option changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionMeaning {
    LargeSegmentSize,
    MaxSplitSize,
    MaxNonSplitRounding,
    GarbageCollection,
    Divisions,
    ExpandableSegments,
    Backend,
    Fraction,
    Reserve,
    ReserveByClass,
    ReleaseLock,
    GraphReuse,
    ThrowOnOom,
    RegisterThreads,
    PinnedReserve,
    /// A number of MiB without bounds, for pinned host memory.
    PinnedSize,
    /// True or False, for pinned host memory.
    PinnedFlag,
}

/// One option of the string.
#[derive(Debug)]
pub(super) struct KnownOption {
    pub(super) key: &'static str,
    pub(super) meaning: OptionMeaning,
    /// Whether the parser shared by all accelerators reads it, or the one for CUDA.
    pub(super) is_shared: bool,
}

const fn option(key: &'static str, meaning: OptionMeaning) -> KnownOption {
    KnownOption { key, meaning, is_shared: false }
}

impl KnownOption {
    const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }
}

/// All options of all supported releases.
pub(super) const OPTIONS: [KnownOption; 22] = [
    option("max_split_size_mb", OptionMeaning::MaxSplitSize).shared(),
    option("garbage_collection_threshold", OptionMeaning::GarbageCollection).shared(),
    option("roundup_power2_divisions", OptionMeaning::Divisions).shared(),
    option("expandable_segments", OptionMeaning::ExpandableSegments).shared(),
    option("max_non_split_rounding_mb", OptionMeaning::MaxNonSplitRounding).shared(),
    option("large_segment_size_mb", OptionMeaning::LargeSegmentSize).shared(),
    option("backend", OptionMeaning::Backend),
    option("release_lock_on_cudamalloc", OptionMeaning::ReleaseLock),
    option("release_lock_on_hipmalloc", OptionMeaning::ReleaseLock),
    option("graph_capture_record_stream_reuse", OptionMeaning::GraphReuse),
    option("per_process_memory_fraction", OptionMeaning::Fraction),
    option("throw_on_cudamalloc_oom", OptionMeaning::ThrowOnOom),
    option("expandable_segments_reserve", OptionMeaning::Reserve),
    option("expandable_segments_reserve_by_class", OptionMeaning::ReserveByClass),
    option("pinned_use_cuda_host_register", OptionMeaning::PinnedFlag),
    option("pinned_use_hip_host_register", OptionMeaning::PinnedFlag),
    option("pinned_num_register_threads", OptionMeaning::RegisterThreads),
    option("pinned_use_background_threads", OptionMeaning::PinnedFlag).shared(),
    option("pinned_reserve_segment_size_mb", OptionMeaning::PinnedReserve),
    option("pinned_free_catch_all", OptionMeaning::PinnedFlag),
    option("pinned_max_round_threshold_mb", OptionMeaning::PinnedSize).shared(),
    option("pinned_max_cached_size_mb", OptionMeaning::PinnedSize).shared(),
];

/// The parser's rules in one release.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent difference")]
pub(super) struct Dialect {
    minor: u32,
    /// Colons and commas are checked, and a missing one is reported. Otherwise any token is accepted in their place.
    pub(super) is_strict: bool,
    /// Tabs and line breaks are removed like spaces.
    pub(super) removes_all_blanks: bool,
    /// The string is parsed twice: first the options that all accelerators share, then the others.
    pub(super) reads_shared_first: bool,
    /// Numbers of MiB are 64 bits wide, not 32.
    pub(super) reads_wide_numbers: bool,
    /// A size limit may equal the large segment size; otherwise it must exceed it.
    pub(super) allows_minimum_size: bool,
    /// 0 means "off" in a list of divisions.
    pub(super) allows_zero_divisions: bool,
    /// `>` in a list starts above the last listed size, not at it.
    pub(super) rest_starts_above: bool,
    /// Parsing resets `max_non_split_rounding` to the large segment size.
    pub(super) resets_non_split_rounding: bool,
    /// See [`Settings::one_division_is_exact`](super::Settings::one_division_is_exact).
    pub(super) one_division_is_exact: bool,
}

impl Dialect {
    pub(super) fn for_release(minor: u32) -> Self {
        let is_new = has_rule(minor, Rule::SharedParser);
        let zero_divisions = has_rule(minor, Rule::ZeroDivisions);
        Self {
            minor,
            is_strict: !is_new,
            removes_all_blanks: is_new,
            reads_shared_first: is_new,
            reads_wide_numbers: is_new,
            allows_minimum_size: is_new,
            allows_zero_divisions: zero_divisions,
            rest_starts_above: is_new,
            resets_non_split_rounding: has_rule(minor, Rule::ResetsNonSplitRounding),
            one_division_is_exact: !zero_divisions,
        }
    }

    /// Option `key` of any release.
    pub(super) fn find_option(key: &str) -> Option<&'static KnownOption> {
        OPTIONS.iter().find(|option| option.key == key)
    }

    pub(super) fn has_option(&self, option: &KnownOption) -> bool {
        option_since(option.key).is_some_and(|since| since <= self.minor)
    }

    /// PyTorch's error for a `key` that this release does not have. `parser` is the part that reports it.
    pub(super) fn unrecognized_key(&self, key: &str, parser: &str) -> ConfError {
        let message = format!("Unrecognized key '{key}' in {parser} allocator config.");
        ConfError::new(message).with_help(self.help_for_key(key))
    }

    /// A hint for a `key` that this release does not have: its first release, or a similar key.
    pub(super) fn help_for_key(&self, key: &str) -> Option<String> {
        if let Some(since) = option_since(key) {
            return Some(format!("this option exists since PyTorch 2.{since}"));
        }
        let close = key.chars().count() / 4;
        OPTIONS
            .iter()
            .filter(|option| self.has_option(option))
            .map(|option| (strsim::levenshtein(key, option.key), option.key))
            .min()
            .filter(|(distance, _)| *distance <= close)
            .map(|(_, near)| format!("did you mean {near}?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_belongs_to_a_release() {
        let without: Vec<&str> = OPTIONS.iter().map(|o| o.key).filter(|key| option_since(key).is_none()).collect();
        assert_eq!(without, Vec::<&str>::new());
    }

    #[test]
    fn hints_name_the_release_or_a_similar_key() {
        let dialect = Dialect::for_release(9);
        let help = |key| dialect.help_for_key(key).unwrap_or_default();
        assert_eq!(help("max_split_size"), "did you mean max_split_size_mb?");
        assert_eq!(help("expandable_segment"), "did you mean expandable_segments?");
        assert_eq!(help("large_segment_size_mb"), "this option exists since PyTorch 2.11");
        assert_eq!(help("foo"), "");
    }
}

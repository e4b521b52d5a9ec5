//! What differs between the releases of PyTorch in reading the string.

use super::error::ConfError;
use crate::allocator::releases::{Rule, follows, option_since};

/// What an option sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
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
    /// A number of MiB without bounds that is of no concern to device memory.
    PinnedSize,
    /// True or False that is of no concern to device memory.
    PinnedFlag,
}

/// One option of the string.
#[derive(Debug)]
pub(super) struct KnownOption {
    pub(super) key: &'static str,
    pub(super) meaning: Meaning,
    /// Whether the part of the parser that all accelerators share reads it, or the one for CUDA.
    pub(super) is_shared: bool,
}

const fn option(key: &'static str, meaning: Meaning) -> KnownOption {
    KnownOption { key, meaning, is_shared: false }
}

impl KnownOption {
    const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }
}

/// All options of all releases since 2.1.
pub(super) const OPTIONS: [KnownOption; 22] = [
    option("max_split_size_mb", Meaning::MaxSplitSize).shared(),
    option("garbage_collection_threshold", Meaning::GarbageCollection).shared(),
    option("roundup_power2_divisions", Meaning::Divisions).shared(),
    option("expandable_segments", Meaning::ExpandableSegments).shared(),
    option("max_non_split_rounding_mb", Meaning::MaxNonSplitRounding).shared(),
    option("large_segment_size_mb", Meaning::LargeSegmentSize).shared(),
    option("backend", Meaning::Backend),
    option("release_lock_on_cudamalloc", Meaning::ReleaseLock),
    option("release_lock_on_hipmalloc", Meaning::ReleaseLock),
    option("graph_capture_record_stream_reuse", Meaning::GraphReuse),
    option("per_process_memory_fraction", Meaning::Fraction),
    option("throw_on_cudamalloc_oom", Meaning::ThrowOnOom),
    option("expandable_segments_reserve", Meaning::Reserve),
    option("expandable_segments_reserve_by_class", Meaning::ReserveByClass),
    option("pinned_use_cuda_host_register", Meaning::PinnedFlag),
    option("pinned_use_hip_host_register", Meaning::PinnedFlag),
    option("pinned_num_register_threads", Meaning::RegisterThreads),
    option("pinned_use_background_threads", Meaning::PinnedFlag).shared(),
    option("pinned_reserve_segment_size_mb", Meaning::PinnedReserve),
    option("pinned_free_catch_all", Meaning::PinnedFlag),
    option("pinned_max_round_threshold_mb", Meaning::PinnedSize).shared(),
    option("pinned_max_cached_size_mb", Meaning::PinnedSize).shared(),
];

/// The rules of one release.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent difference")]
pub(super) struct Dialect {
    minor: u32,
    /// Colons and commas are looked at, and missing values asked for by name. Otherwise whatever
    /// token stands in their place is passed over.
    pub(super) is_strict: bool,
    /// Tabs and line ends are removed like spaces.
    pub(super) removes_all_blanks: bool,
    /// The options shared by all accelerators are read first, over the whole string.
    pub(super) reads_shared_first: bool,
    /// Numbers of MiB are 64 bits wide, not 32.
    pub(super) reads_wide_numbers: bool,
    /// The least size of blocks may be that of a large segment, not only more.
    pub(super) allows_least_size: bool,
    /// 0 stands for "off" in a list of divisions.
    pub(super) allows_zero_divisions: bool,
    /// `>` in a list begins above the last size listed, not at it.
    pub(super) rest_begins_above: bool,
    /// A parse sets the rounding of unsplit blocks back to the large segment size.
    pub(super) resets_non_split_rounding: bool,
    /// See [`Settings::one_division_is_exact`](super::Settings::one_division_is_exact).
    pub(super) one_division_is_exact: bool,
}

impl Dialect {
    /// The dialect of PyTorch 2.`minor`.
    pub(super) fn of(minor: u32) -> Self {
        let is_new = follows(minor, Rule::SharedParser);
        let zero_divisions = follows(minor, Rule::ZeroDivisions);
        Self {
            minor,
            is_strict: !is_new,
            removes_all_blanks: is_new,
            reads_shared_first: is_new,
            reads_wide_numbers: is_new,
            allows_least_size: is_new,
            allows_zero_divisions: zero_divisions,
            rest_begins_above: is_new,
            resets_non_split_rounding: follows(minor, Rule::ResetsNonSplitRounding),
            one_division_is_exact: !zero_divisions,
        }
    }

    /// The option `key` of this or any other release.
    pub(super) fn find(key: &str) -> Option<&'static KnownOption> {
        OPTIONS.iter().find(|option| option.key == key)
    }

    /// Whether this release has `option`.
    pub(super) fn has(&self, option: &KnownOption) -> bool {
        option_since(option.key).is_some_and(|since| since <= self.minor)
    }

    /// What is said of a `key` that this release does not have, by the part of its parser that reads it.
    pub(super) fn unrecognized(&self, key: &str, parser: &str) -> ConfError {
        let words = format!("Unrecognized key '{key}' in {parser} allocator config.");
        ConfError::new(words).with_help(self.help_for(key))
    }

    /// What helps someone who wrote a key this release does not have.
    pub(super) fn help_for(&self, key: &str) -> Option<String> {
        if let Some(since) = option_since(key) {
            return Some(format!("this option exists since PyTorch 2.{since}"));
        }
        let close = key.chars().count() / 4;
        OPTIONS
            .iter()
            .filter(|option| self.has(option))
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
    fn every_option_is_of_a_release() {
        let without: Vec<&str> =
            OPTIONS.iter().map(|o| o.key).filter(|key| option_since(key).is_none()).collect();
        assert_eq!(without, Vec::<&str>::new());
    }

    #[test]
    fn help_is_given_only_where_it_helps() {
        let dialect = Dialect::of(9);
        let help = |key| dialect.help_for(key).unwrap_or_default();
        assert_eq!(help("max_split_size"), "did you mean max_split_size_mb?");
        assert_eq!(help("expandable_segment"), "did you mean expandable_segments?");
        assert_eq!(help("large_segment_size_mb"), "this option exists since PyTorch 2.11");
        assert_eq!(help("foo"), "");
    }
}

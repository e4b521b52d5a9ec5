//! What differs between the releases of PyTorch in reading the string.

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
    /// The key that PyTorch names in errors, which for an alias is not its own.
    pub(super) name: &'static str,
    pub(super) meaning: Meaning,
    /// The minor release of PyTorch 2 that brought it.
    pub(super) since: u32,
    /// Whether the part of the parser that all accelerators share reads it, or the one for CUDA.
    pub(super) is_shared: bool,
    /// Whether a missing value is called just that; the rest ask for True or False.
    pub(super) expects_value: bool,
}

const fn option(key: &'static str, meaning: Meaning, since: u32) -> KnownOption {
    KnownOption { key, name: key, meaning, since, is_shared: false, expects_value: true }
}

impl KnownOption {
    const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    const fn expects_flag(mut self) -> Self {
        self.expects_value = false;
        self
    }
}

const RELEASE_LOCK: &str = "release_lock_on_cudamalloc";
const HOST_REGISTER: &str = "pinned_use_cuda_host_register";

/// All options of all releases since 2.1.
pub(super) const OPTIONS: [KnownOption; 22] = [
    option("max_split_size_mb", Meaning::MaxSplitSize, 0).shared(),
    option("garbage_collection_threshold", Meaning::GarbageCollection, 0).shared(),
    option("roundup_power2_divisions", Meaning::Divisions, 0).shared(),
    option("expandable_segments", Meaning::ExpandableSegments, 0).shared().expects_flag(),
    option("max_non_split_rounding_mb", Meaning::MaxNonSplitRounding, 6).shared(),
    option("large_segment_size_mb", Meaning::LargeSegmentSize, 11).shared(),
    option("backend", Meaning::Backend, 0),
    option(RELEASE_LOCK, Meaning::ReleaseLock, 2).expects_flag(),
    option("release_lock_on_hipmalloc", Meaning::ReleaseLock, 2).named(RELEASE_LOCK).expects_flag(),
    option("graph_capture_record_stream_reuse", Meaning::GraphReuse, 9),
    option("per_process_memory_fraction", Meaning::Fraction, 10),
    option("throw_on_cudamalloc_oom", Meaning::ThrowOnOom, 12),
    option("expandable_segments_reserve", Meaning::Reserve, 15),
    option("expandable_segments_reserve_by_class", Meaning::ReserveByClass, 15),
    option(HOST_REGISTER, Meaning::PinnedFlag, 2),
    option("pinned_use_hip_host_register", Meaning::PinnedFlag, 2).named(HOST_REGISTER),
    option("pinned_num_register_threads", Meaning::RegisterThreads, 2),
    option("pinned_use_background_threads", Meaning::PinnedFlag, 6).shared(),
    option("pinned_reserve_segment_size_mb", Meaning::PinnedReserve, 10),
    option("pinned_free_catch_all", Meaning::PinnedFlag, 12),
    option("pinned_max_round_threshold_mb", Meaning::PinnedSize, 13).shared(),
    option("pinned_max_cached_size_mb", Meaning::PinnedSize, 13).shared(),
];

/// The rules and words of one release.
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
    /// How this release spells "divisions" in errors.
    pub(super) divisions: &'static str,
    /// What reads the sizes in a list of divisions.
    pub(super) interval_reader: &'static str,
    /// The class of most errors, and of numbers out of range.
    pub(super) error_class: &'static str,
    pub(super) range_class: &'static str,
}

impl Dialect {
    /// The dialect of PyTorch 2.`minor`.
    pub(super) fn of(minor: u32) -> Self {
        // 2.10 replaced the parser of CUDA by one for all accelerators.
        let is_new = minor >= 10;
        Self {
            minor,
            is_strict: !is_new,
            removes_all_blanks: is_new,
            reads_shared_first: is_new,
            reads_wide_numbers: is_new,
            allows_least_size: is_new,
            allows_zero_divisions: minor >= 4,
            rest_begins_above: is_new,
            resets_non_split_rounding: minor >= 11,
            one_division_is_exact: minor <= 3,
            divisions: if minor >= 8 { "divisions" } else { "divisons" },
            interval_reader: if is_new { "stoull" } else { "stoul" },
            error_class: if is_new { "ValueError" } else { "RuntimeError" },
            range_class: if is_new { "IndexError" } else { "RuntimeError" },
        }
    }

    /// The option `key` of this or any other release.
    pub(super) fn find(key: &str) -> Option<&'static KnownOption> {
        OPTIONS.iter().find(|option| option.key == key)
    }

    /// Whether this release has `option`.
    pub(super) fn has(&self, option: &KnownOption) -> bool {
        option.since <= self.minor
    }

    /// The text of the error for a key this release does not have.
    pub(super) fn unknown_key(&self, key: &str, shared: bool) -> String {
        if self.is_strict {
            return format!("Unrecognized CachingAllocator option: {key}");
        }
        let parser = if shared { "Accelerator" } else { "CUDA" };
        format!("Unrecognized key '{key}' in {parser} allocator config.")
    }

    /// What helps someone who wrote a key this release does not have.
    pub(super) fn help_for(&self, key: &str) -> Option<String> {
        if let Some(option) = Self::find(key) {
            return Some(format!("this option exists since PyTorch 2.{}", option.since));
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
    fn help_is_given_only_where_it_helps() {
        let dialect = Dialect::of(9);
        let help = |key| dialect.help_for(key).unwrap_or_default();
        assert_eq!(help("max_split_size"), "did you mean max_split_size_mb?");
        assert_eq!(help("expandable_segment"), "did you mean expandable_segments?");
        assert_eq!(help("large_segment_size_mb"), "this option exists since PyTorch 2.11");
        assert_eq!(help("foo"), "");
    }
}

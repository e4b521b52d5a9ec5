//! The releases of PyTorch 2 whose rules are known, and what each changed.
//!
//! Everything that depends on a release asks this list: the allocator's rules, the grammar of the settings
//! and its options, the keys of a snapshot. A new release is a row; until it has one it is refused.
//!
//! Each row was settled by recordings of fifteen releases, 2.1.2 to 2.15.0.

mod lines;

pub use lines::written_by;

/// A rule that some release changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Expandable segments serve private pools too (pytorch/pytorch#128068).
    ExpandablePrivatePools,
    /// Unmapping counts as one device allocation less of a private pool.
    UnmapCountsForPool,
    /// Expandable blocks are passed over where whole segments are given back for a request.
    ReclaimSkipsExpandable,
    /// Pools lent for emergencies (`MemPool(use_on_oom=True)`) serve what nothing else could.
    LentPools,
    /// They are searched before cached memory is given back to the device.
    LentPoolsBeforeReclaiming,
    /// Pools over an allocator of the program's own follow the rules of whole segments.
    CustomPoolsStayWhole,
    /// Of free blocks of one size the oldest is taken, not the lowest (pytorch/pytorch#167662).
    OldestBlock,
    /// The lowest in the oldest segment is taken.
    OldestSegment,
    /// Requests above the fraction can be refused before the device is asked.
    ThrowOnOom,
    /// A reservation smaller than the request is given back instead of used.
    ReservationMustFit,
    /// Only a request in a graph capture waits for nothing and has nothing given back by other pools.
    OnlyCapturesHoldUp,
    /// `memory_stats()` has the figures of each private pool.
    StatisticsByPool,
    /// One division rounds to 512 bytes as no division does, and 0 stands for "off" in a list.
    ZeroDivisions,
    /// One parser of the settings for all accelerators: it passes over what stands in the place of colons and
    /// commas, and reads wide numbers.
    SharedParser,
    /// Memory that is given back is recorded with a stack.
    StacksOfReleases,
    /// A parse sets the rounding of unsplit blocks back to the large segment size.
    ResetsNonSplitRounding,
}

/// A minor release, and what it brought.
#[derive(Debug, Clone, Copy)]
struct Release {
    minor: u32,
    rules: &'static [Rule],
    /// Options of `PYTORCH_CUDA_ALLOC_CONF`.
    options: &'static [&'static str],
    /// Keys of a snapshot, and of its settings, by which it can be told from those before.
    keys: &'static [&'static str],
    /// Figures of `memory_stats()`.
    statistics: &'static [&'static str],
}

const fn release(minor: u32) -> Release {
    Release { minor, rules: &[], options: &[], keys: &[], statistics: &[] }
}

/// Oldest first, none left out. Row 0 stands for what is older than the rules that are known.
const RELEASES: [Release; 16] = [
    // pytorch/pytorch#86241
    Release { keys: &["device_traces"], ..release(0) },
    Release {
        options: &[
            "max_split_size_mb",
            "garbage_collection_threshold",
            "roundup_power2_divisions",
            "expandable_segments",
            "backend",
        ],
        keys: &["is_expandable"],
        ..release(1)
    },
    Release {
        options: &[
            "release_lock_on_cudamalloc",
            "release_lock_on_hipmalloc",
            "pinned_use_cuda_host_register",
            "pinned_use_hip_host_register",
            "pinned_num_register_threads",
        ],
        keys: &["time_us"], // pytorch/pytorch#112266
        ..release(2)
    },
    Release {
        rules: &[Rule::StacksOfReleases],
        keys: &["allocator_settings"],
        statistics: &["num_device_alloc", "num_device_free", "num_sync_all_streams"],
        ..release(3)
    },
    Release { rules: &[Rule::ZeroDivisions], ..release(4) },
    Release {
        rules: &[Rule::ExpandablePrivatePools, Rule::UnmapCountsForPool],
        keys: &["external_annotations"],
        ..release(5)
    },
    Release {
        options: &["max_non_split_rounding_mb", "pinned_use_background_threads"],
        ..release(6)
    },
    release(7),
    Release {
        rules: &[Rule::ReclaimSkipsExpandable, Rule::LentPools],
        keys: &["compile_context"],
        ..release(8)
    },
    Release {
        options: &["graph_capture_record_stream_reuse"],
        keys: &["graph_capture_record_stream_reuse"],
        ..release(9)
    },
    Release {
        rules: &[Rule::CustomPoolsStayWhole, Rule::SharedParser],
        options: &["per_process_memory_fraction", "pinned_reserve_segment_size_mb"],
        keys: &["user_metadata"],
        ..release(10)
    },
    Release {
        rules: &[Rule::LentPoolsBeforeReclaiming, Rule::ResetsNonSplitRounding],
        options: &["large_segment_size_mb"],
        ..release(11)
    },
    Release {
        rules: &[Rule::OldestBlock, Rule::ThrowOnOom],
        options: &["throw_on_cudamalloc_oom", "pinned_free_catch_all"],
        keys: &["pool_id"],
        statistics: &["num_oom_rejections"],
        ..release(12)
    },
    Release {
        rules: &[
            Rule::OldestSegment,
            Rule::ReservationMustFit,
            Rule::OnlyCapturesHoldUp,
            Rule::StatisticsByPool,
        ],
        options: &["pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"],
        keys: &["max_round_threshold"],
        ..release(13)
    },
    Release { keys: &["host_traces", "internal_metadata"], ..release(14) },
    Release {
        options: &["expandable_segments_reserve", "expandable_segments_reserve_by_class"],
        ..release(15)
    },
];

/// The oldest release that the rules are known of.
pub const OLDEST: u32 = 1;
/// The newest release that the rules are known of.
pub const NEWEST: u32 = RELEASES[RELEASES.len() - 1].minor;

/// Whether release 2.`minor` follows `rule`.
pub fn follows(minor: u32, rule: Rule) -> bool {
    since(|release| release.rules.contains(&rule)).is_some_and(|since| since <= minor)
}

/// The release that brought the option `name`; `None` of one that no release has.
pub fn option_since(name: &str) -> Option<u32> {
    since(|release| release.options.contains(&name))
}

/// The release that first wrote `key`.
pub fn key_since(key: &str) -> Option<u32> {
    since(|release| release.keys.contains(&key))
}

/// The release that first counted the figure `name`; `None` of one that all count.
pub fn statistic_since(name: &str) -> Option<u32> {
    since(|release| release.statistics.contains(&name))
}

fn since(brought: impl Fn(&Release) -> bool) -> Option<u32> {
    RELEASES.iter().find(|release| brought(release)).map(|release| release.minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_has_its_row_and_nothing_comes_twice() {
        let minors: Vec<u32> = RELEASES.iter().map(|release| release.minor).collect();
        assert_eq!(minors, (0..=NEWEST).collect::<Vec<_>>());
        let once = |all: Vec<String>| {
            let mut sorted = all.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), all.len(), "{all:?}");
        };
        let named =
            |names: &[&'static str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        once(RELEASES.iter().flat_map(|r| r.rules).map(|rule| format!("{rule:?}")).collect());
        once(RELEASES.iter().flat_map(|r| named(r.options)).collect());
        once(RELEASES.iter().flat_map(|r| named(r.keys)).collect());
        once(RELEASES.iter().flat_map(|r| named(r.statistics)).collect());
    }
}

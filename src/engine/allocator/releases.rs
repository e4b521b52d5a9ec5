//! The supported releases of PyTorch 2, and the rules and keys that each introduced.
//!
//! Everything that depends on the release is looked up in this table: the allocator's rules, the grammar of the
//! settings, the keys of a snapshot. The table of options ([`super::conf`]) has the release of each. A new release is a
//! new row; until then it is unsupported.
//!
//! Each row was verified with recordings of fifteen releases, 2.1.2 to 2.15.0.

mod lines;

pub use lines::releases_with_line;

/// A rule that a release introduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Expandable segments serve private pools too (pytorch/pytorch#128068). In older releases only their rule for
    /// splitting applied there.
    ExpandablePrivatePools,
    /// Unmapping decreases a private pool's `cudaMalloc_count`.
    UnmapCountsForPool,
    /// `release_available_cached_blocks` skips expandable blocks.
    ReclaimSkipsExpandable,
    /// Pools with a custom allocator follow the rules for plain segments, whatever the settings. In older releases the rule
    /// for splitting depended on the settings alone.
    CustomPoolsNeverExpandable,
    /// Among free blocks of the same size the oldest serves, not the one with the lowest address
    /// (pytorch/pytorch#167662).
    OldestBlock,
    /// Among free blocks of the same size the lowest one in the oldest segment serves.
    OldestSegment,
    /// A reservation that is smaller than the request is released, and the request fails.
    ReservationMustFit,
    /// A request for a private pool outside a graph capture waits for events and releases cached blocks. Before, every
    /// request for a private pool, in `use_mem_pool` too, behaved as in a graph capture.
    PrivatePoolsRetry,
    /// `memory_stats()` has statistics for each private pool.
    StatisticsByPool,
    /// One division means plain rounding to 512 bytes, and 0 means "off" in a list of divisions.
    ZeroDivisions,
    /// All accelerators share one settings parser. It accepts any token in place of a colon or comma, and reads
    /// 64-bit numbers.
    SharedParser,
    /// `segment_free` and `segment_unmap` entries have a stack.
    StacksOfSegmentFrees,
    /// Parsing resets `max_non_split_rounding` to the large segment size.
    ResetsNonSplitRounding,
    /// With `throw_on_cudamalloc_oom`, a request above `per_process_memory_fraction` fails before `cudaMalloc`.
    ThrowsOnCudaMallocOom,
}

/// A minor release, the rules that it introduced, and so the keys of a snapshot, of its settings and of `memory_stats()`.
type Release = (u32, &'static [Rule], &'static [&'static str]);

/// Oldest first, without gaps. Row 0 stands for releases older than the supported ones.
const RELEASES: [Release; 16] = [
    (0, &[], &["device_traces"]), // pytorch/pytorch#86241
    (1, &[], &["is_expandable"]),
    (2, &[], &["time_us"]), // pytorch/pytorch#112266
    (
        3,
        &[Rule::StacksOfSegmentFrees],
        &["allocator_settings", "num_device_alloc", "num_device_free", "num_sync_all_streams"],
    ),
    (4, &[Rule::ZeroDivisions], &[]),
    (5, &[Rule::ExpandablePrivatePools, Rule::UnmapCountsForPool], &["external_annotations"]),
    (6, &[], &[]),
    (7, &[], &[]),
    (8, &[Rule::ReclaimSkipsExpandable], &["compile_context"]),
    (9, &[], &["graph_capture_record_stream_reuse"]),
    (10, &[Rule::CustomPoolsNeverExpandable, Rule::SharedParser], &["user_metadata"]),
    (11, &[Rule::ResetsNonSplitRounding], &[]),
    (12, &[Rule::OldestBlock, Rule::ThrowsOnCudaMallocOom], &["pool_id", "num_oom_rejections"]),
    (
        13,
        &[Rule::OldestSegment, Rule::ReservationMustFit, Rule::PrivatePoolsRetry, Rule::StatisticsByPool],
        &["max_round_threshold"],
    ),
    (14, &[], &["host_traces", "internal_metadata"]),
    (15, &[], &[]),
];

/// The oldest supported minor release.
pub const OLDEST: u32 = 1;
/// The newest supported minor release.
pub const NEWEST: u32 = RELEASES[RELEASES.len() - 1].0;

/// Which of several free blocks of the same size serves a request (pytorch/pytorch#167662).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TieBreak {
    /// The one with the lowest address.
    LowestAddress,
    /// The one that was created first, as a segment or by a split.
    OldestBlock,
    /// The one in the oldest segment, and in it the one with the lowest address.
    OldestSegment,
}

/// The rules of one release: a bit for each. Equal for releases with the same rules, so one replay answers for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behaviour(u32);

impl Behaviour {
    /// The rules of PyTorch 2.`minor`: 9 for 2.9.1.
    pub fn for_release(minor: u32) -> Self {
        let rules = RELEASES.iter().take_while(|(first, ..)| *first <= minor).flat_map(|(_, rules, _)| *rules);
        Self(rules.fold(0, |bits, rule| bits | 1 << *rule as u32))
    }

    /// Whether the release follows `rule`.
    #[inline]
    pub fn has(self, rule: Rule) -> bool {
        self.0 >> rule as u32 & 1 == 1
    }

    /// The choice among free blocks of the same size.
    #[inline]
    pub fn tie_break(self) -> TieBreak {
        match (self.has(Rule::OldestSegment), self.has(Rule::OldestBlock)) {
            (true, _) => TieBreak::OldestSegment,
            (false, true) => TieBreak::OldestBlock,
            (false, false) => TieBreak::LowestAddress,
        }
    }
}

/// Whether release 2.`minor` follows `rule`.
pub fn has_rule(minor: u32, rule: Rule) -> bool {
    Behaviour::for_release(minor).has(rule)
}

/// The release that first wrote `key`; `None` if all releases do.
pub fn key_since(key: &str) -> Option<u32> {
    RELEASES.iter().find(|(.., keys)| keys.contains(&key)).map(|(minor, ..)| *minor)
}

/// Parses `2.9`, `2.9.1` or `2.9.1+cu128` to the minor release.
///
/// # Errors
/// One sentence, also for a release that is not supported.
pub fn parse_release(text: &str) -> Result<u32, String> {
    let mut parts = text.split(['.', '+']);
    let (major, minor) = (parts.next(), parts.next().and_then(|minor| minor.parse().ok()));
    match (major, minor) {
        (Some("2"), Some(minor @ OLDEST..=NEWEST)) => Ok(minor),
        _ => Err(format!("give a release from 2.{OLDEST} to 2.{NEWEST}, such as 2.9")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_release_has_a_row_and_nothing_is_listed_twice() {
        let minors: Vec<u32> = RELEASES.iter().map(|(minor, ..)| *minor).collect();
        assert_eq!(minors, (0..=NEWEST).collect::<Vec<_>>());
        let rules = RELEASES.iter().flat_map(|(_, rules, _)| *rules).map(|rule| format!("{rule:?}"));
        let keys = RELEASES.iter().flat_map(|(.., keys)| *keys).map(|key| (*key).to_owned());
        let names: Vec<String> = rules.chain(keys).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}

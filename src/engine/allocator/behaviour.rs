//! The differences between releases of PyTorch in the allocator's decisions, as a value.

use crate::allocator::conf::option_since;
use crate::allocator::releases::{Rule, rules};

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

/// The rules of one release. Equal for releases with the same rules, so one replay answers for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// A bit for each rule.
    rules: u32,
    /// The choice among free blocks of the same size.
    pub tie_break: TieBreak,
    /// `throw_on_cudamalloc_oom`: a request above `per_process_memory_fraction` fails before `cudaMalloc`.
    pub has_throw_on_cudamalloc_oom: bool,
}

impl Behaviour {
    /// The rules of PyTorch 2.`minor`: 9 for 2.9.1.
    pub fn for_release(minor: u32) -> Self {
        let has_option = |key| option_since(key).is_some_and(|since| since <= minor);
        let rules = Self {
            rules: rules(minor),
            tie_break: TieBreak::LowestAddress,
            has_throw_on_cudamalloc_oom: has_option("throw_on_cudamalloc_oom"),
        };
        let tie_break = match (rules.has(Rule::OldestSegment), rules.has(Rule::OldestBlock)) {
            (true, _) => TieBreak::OldestSegment,
            (false, true) => TieBreak::OldestBlock,
            (false, false) => TieBreak::LowestAddress,
        };
        Self { tie_break, ..rules }
    }

    /// Whether the release follows `rule`.
    #[inline]
    pub fn has(self, rule: Rule) -> bool {
        self.rules >> rule as u32 & 1 == 1
    }
}

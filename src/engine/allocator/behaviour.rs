//! The differences between releases of PyTorch in the allocator's decisions, as a value.

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

/// The rules of one release: a bit for each. Equal for releases with the same rules, so one replay answers for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour(u32);

impl Behaviour {
    /// The rules of PyTorch 2.`minor`: 9 for 2.9.1.
    pub fn for_release(minor: u32) -> Self {
        Self(rules(minor))
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

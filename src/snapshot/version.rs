//! Which PyTorch releases write the keys that a file has.
//!
//! No snapshot names its release. Each key below is written by every recording since the release that
//! brought it and by none before.

use std::fmt;

use super::keys::{self, Seen};
use crate::ids::SymbolId;
use crate::releases::key_since;

/// A range of minor releases of PyTorch 2, such as 2.3-2.4, 2.8 or 2.14+.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TorchRange {
    /// The first release that writes all keys of the file, if any key tells.
    pub first: Option<u32>,
    /// The last release that writes no more keys than the file has, if any key tells.
    pub last: Option<u32>,
}

impl Default for TorchRange {
    fn default() -> Self {
        Self { first: None, last: Some(LEGACY) }
    }
}

/// Stands for 1.x: before the oldest key.
const LEGACY: u32 = 0;

/// What was met in a file, by where.
#[derive(Debug, Default)]
pub(super) struct KeysSeen {
    pub(super) top: Seen,
    pub(super) event: Seen,
    pub(super) segment: Seen,
    pub(super) block: Seen,
    /// Keys of `allocator_settings`.
    pub(super) settings: Vec<String>,
}

enum Mark {
    Top(SymbolId),
    Entry(SymbolId),
    Segment(SymbolId),
    Setting,
}

/// The keys by which releases are told apart, the oldest first: see [`crate::releases`].
const MARKS: [(&str, Mark); 12] = [
    ("device_traces", Mark::Top(keys::DEVICE_TRACES)),
    ("is_expandable", Mark::Segment(keys::IS_EXPANDABLE)),
    ("time_us", Mark::Entry(keys::TIME_US)),
    ("allocator_settings", Mark::Top(keys::ALLOCATOR_SETTINGS)),
    ("external_annotations", Mark::Top(keys::EXTERNAL_ANNOTATIONS)),
    ("compile_context", Mark::Entry(keys::COMPILE_CONTEXT)),
    ("graph_capture_record_stream_reuse", Mark::Setting),
    ("user_metadata", Mark::Entry(keys::USER_METADATA)),
    ("pool_id", Mark::Entry(keys::POOL_ID)),
    ("max_round_threshold", Mark::Setting),
    ("host_traces", Mark::Top(keys::HOST_TRACES)),
    ("internal_metadata", Mark::Entry(keys::INTERNAL_METADATA)), // optional: tells only where it is
];

impl KeysSeen {
    /// The releases that write these keys. A key can be missed only where it could have stood: in a
    /// file with trace entries, with settings, and so on.
    pub(super) fn torch(&self, has_events: bool, has_segments: bool) -> TorchRange {
        let (mut first, mut last) = (None, None);
        for (name, mark) in &MARKS {
            let since = key_since(name);
            let (present, could_be) = match mark {
                Mark::Top(key) => (self.top.has(*key), true),
                Mark::Entry(keys::INTERNAL_METADATA) => {
                    (self.event.has(keys::INTERNAL_METADATA), false)
                }
                Mark::Entry(key) => (self.event.has(*key), has_events),
                Mark::Segment(key) => (self.segment.has(*key), has_segments),
                Mark::Setting => {
                    (self.settings.iter().any(|s| s == name), !self.settings.is_empty())
                }
            };
            if present {
                first = first.max(since);
            } else if could_be && last.is_none() {
                last = since.map(|since| since.saturating_sub(1));
            }
        }
        // A bare list of segments says nothing of the top-level keys.
        if self.top.has(keys::SEGMENTS) || first.is_none() {
            TorchRange { first, last: last.filter(|last| first.is_none_or(|first| *last >= first)) }
        } else {
            TorchRange { first, last: None }
        }
    }
}

impl fmt::Display for TorchRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (None, _) => write!(f, "<2.1"),
            (Some(first), Some(last)) if first == last => write!(f, "2.{first}"),
            (Some(first), Some(last)) => write!(f, "2.{first}-2.{last}"),
            (Some(first), None) => write!(f, "2.{first}+"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_of_a_release_in_order() {
        let since: Vec<Option<u32>> = MARKS.iter().map(|(name, _)| key_since(name)).collect();
        assert!(since.iter().all(Option::is_some) && since.is_sorted(), "{since:?}");
    }
}

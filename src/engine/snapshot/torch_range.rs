//! Inferring the PyTorch release that wrote a file, because no snapshot names it.
//!
//! Every recording since some release has a key that no earlier one has. Stacks have line numbers of PyTorch's own
//! code, which change from release to release.

use std::fmt;

use super::keys::{self, KeySet};
use super::stacks::Stacks;
use crate::allocator::releases::{NEWEST, key_since, releases_with_line};
use crate::base::ids::SymbolId;
use crate::base::intern::Symbols;

/// A range of minor releases of PyTorch 2, such as 2.3-2.4, 2.8 or 2.14+.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TorchRange {
    /// The first release that writes all keys of the file; `None` before PyTorch 2.1.
    pub first: Option<u32>,
    /// The last release that writes no other keys; `None` if it is open-ended.
    pub last: Option<u32>,
}

impl Default for TorchRange {
    fn default() -> Self {
        Self { first: None, last: Some(LEGACY) }
    }
}

/// Row of releases before the oldest key.
const LEGACY: u32 = 0;

/// The keys found in a file, by kind of record.
#[derive(Debug, Default)]
pub(super) struct KeysSeen {
    pub(super) top: KeySet,
    pub(super) entry: KeySet,
    pub(super) segment: KeySet,
    /// Keys of `allocator_settings`.
    pub(super) settings: Vec<String>,
}

enum KeyMark {
    Top(SymbolId),
    Entry(SymbolId),
    Segment(SymbolId),
    Setting,
}

/// Keys that identify releases, oldest first: see [`crate::allocator::releases`].
const KEY_MARKS: [(&str, KeyMark); 12] = [
    ("device_traces", KeyMark::Top(keys::DEVICE_TRACES)),
    ("is_expandable", KeyMark::Segment(keys::IS_EXPANDABLE)),
    ("time_us", KeyMark::Entry(keys::TIME_US)),
    ("allocator_settings", KeyMark::Top(keys::ALLOCATOR_SETTINGS)),
    ("external_annotations", KeyMark::Top(keys::EXTERNAL_ANNOTATIONS)),
    ("compile_context", KeyMark::Entry(keys::COMPILE_CONTEXT)),
    ("graph_capture_record_stream_reuse", KeyMark::Setting),
    ("user_metadata", KeyMark::Entry(keys::USER_METADATA)),
    ("pool_id", KeyMark::Entry(keys::POOL_ID)),
    ("max_round_threshold", KeyMark::Setting),
    ("host_traces", KeyMark::Top(keys::HOST_TRACES)),
    ("internal_metadata", KeyMark::Entry(keys::INTERNAL_METADATA)), // optional: its absence shows nothing
];

impl KeysSeen {
    /// The releases that write these keys. The absence of a key counts only if the file has records that could have
    /// it: trace entries, settings, and so on.
    pub(super) fn torch_range(&self, has_entries: bool, has_segments: bool) -> TorchRange {
        let (mut first, mut last) = (None, None);
        for (name, mark) in &KEY_MARKS {
            let since = key_since(name);
            let (present, could_be) = match mark {
                KeyMark::Top(key) => (self.top.has(*key), true),
                KeyMark::Entry(keys::INTERNAL_METADATA) => (self.entry.has(keys::INTERNAL_METADATA), false),
                KeyMark::Entry(key) => (self.entry.has(*key), has_entries),
                KeyMark::Segment(key) => (self.segment.has(*key), has_segments),
                KeyMark::Setting => (self.settings.iter().any(|s| s == name), !self.settings.is_empty()),
            };
            if present {
                first = first.max(since);
            } else if could_be && last.is_none() {
                last = since.map(|since| since.saturating_sub(1));
            }
        }
        // A bare list of segments has no top-level keys.
        let is_list = !self.top.has(keys::SEGMENTS) && first.is_some();
        TorchRange { first, last: last.filter(|last| !is_list && first.is_none_or(|first| *last >= first)) }
    }
}

impl TorchRange {
    /// The releases of this range that have most of the lines of PyTorch's own code in `stacks`. Not all lines need to
    /// match, because a line may belong to different statements in different releases. If releases outside the range
    /// have more, they are the `Err`.
    pub(super) fn narrow_by_lines(self, stacks: &Stacks, symbols: &Symbols) -> Result<Self, Self> {
        let mut lines = [0u64; NEWEST as usize + 1];
        for releases in stacks
            .all_frames()
            .filter_map(|frame| releases_with_line(symbols.get(frame.file), symbols.get(frame.name), frame.line))
        {
            for (minor, lines) in lines.iter_mut().enumerate() {
                *lines += u64::from(releases >> minor & 1);
            }
        }
        let most = lines.into_iter().fold(0, u64::max);
        if most == 0 {
            return Ok(self);
        }
        let have_most = (0..).zip(&lines).filter(|(_, lines)| **lines == most).map(|(minor, _)| minor);
        // An open end excludes no release.
        let allowed = self.first.unwrap_or(0)..=self.last.unwrap_or(NEWEST);
        let within = Self::from_first_to_last(have_most.clone().filter(|minor| allowed.contains(minor)));
        within.ok_or_else(|| Self::from_first_to_last(have_most).unwrap_or(self))
    }

    fn from_first_to_last(mut minors: impl Iterator<Item = u32>) -> Option<Self> {
        let first = minors.next()?;
        Some(Self { first: Some(first), last: Some(minors.last().unwrap_or(first)) })
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
    fn key_marks_are_in_order_of_releases() {
        let since: Vec<Option<u32>> = KEY_MARKS.iter().map(|(name, _)| key_since(name)).collect();
        assert!(since.iter().all(Option::is_some) && since.is_sorted(), "{since:?}");
    }
}

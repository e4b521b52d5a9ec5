//! The figures of one device, and their changes.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::base::units::saturated;
use crate::study::Peak;
use crate::study::figures::{Amount, Figure, MemoryState};

/// The compared figures with their paths in the JSON. All but the peaks and `ooms` apply to the compared position.
const JSON_PATHS: [(&str, Figure); 26] = [
    ("reserved_bytes", Figure::Reserved),
    ("allocated_bytes", Figure::Allocated),
    ("active_bytes", Figure::Active),
    ("requested_bytes", Figure::Requested),
    ("peak_allocated_bytes", Figure::PeakAllocated),
    ("peak_reserved_bytes", Figure::PeakReserved),
    ("ooms", Figure::Ooms),
    ("segments.count", Figure::Segments),
    ("segments.small.count", Figure::SmallSegments),
    ("segments.small.bytes", Figure::SmallSegmentMemory),
    ("segments.large.count", Figure::LargeSegments),
    ("segments.large.bytes", Figure::LargeSegmentMemory),
    ("segments.expandable.count", Figure::ExpandableSegments),
    ("segments.expandable.bytes", Figure::ExpandableSegmentMemory),
    ("blocks.active_allocated.count", Figure::AllocatedBlocks),
    ("blocks.active_allocated.bytes", Figure::Allocated),
    ("blocks.active_pending_free.count", Figure::PendingBlocks),
    ("blocks.active_pending_free.bytes", Figure::Pending),
    ("blocks.inactive.count", Figure::FreeBlocks),
    ("blocks.inactive.bytes", Figure::Free),
    ("fragmentation.gap_ratio", Figure::GapRatio),
    ("fragmentation.inactive_split_bytes", Figure::InactiveSplit),
    ("fragmentation.releasable_bytes", Figure::Releasable),
    ("fragmentation.stranded_bytes", Figure::Stranded),
    ("fragmentation.largest_free_block_bytes", Figure::LargestFreeBlock),
    ("fragmentation.rounding_bytes", Figure::Rounding),
];

/// The figures of a device, or their changes. `reserved_bytes`, `allocated_bytes`, `active_bytes`, `requested_bytes`,
/// `segments`, `blocks` and `fragmentation` mean the same as in `analyze`, at the compared position.
/// `peak_allocated_bytes` and `peak_reserved_bytes` are the peaks of the compared steps; if the snapshots are compared
/// for lack of a trace, they are current figures. `ooms` counts the failed requests of the whole trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures([Amount; JSON_PATHS.len()]);

impl Figures {
    /// The figures of `state`, with the `peak` of the compared part and the number of failed requests.
    pub(super) fn new(state: MemoryState, peak: Peak, ooms: u64) -> Self {
        Self(JSON_PATHS.map(|(_, figure)| match figure {
            Figure::PeakReserved => Amount::Bytes(peak.reserved_bytes.into()),
            Figure::PeakAllocated => Amount::Bytes(peak.allocated_bytes.into()),
            Figure::Ooms => Amount::Count(ooms.into()),
            _ => {
                let amount = figure.at(&state);
                debug_assert!(amount.is_some(), "{} is always available here", figure.word());
                amount.unwrap_or(Amount::Count(0))
            }
        }))
    }

    /// `after` minus these figures.
    pub(super) fn change_to(&self, after: &Self) -> Self {
        Self(std::array::from_fn(|index| after.0[index].minus(self.0[index])))
    }

    /// All figures with their paths in the JSON.
    pub fn json_paths() -> &'static [(&'static str, Figure)] {
        &JSON_PATHS
    }

    /// The value of `figure`, which must be one of [`Figures::json_paths`].
    pub fn amount(&self, figure: Figure) -> Amount {
        let found = JSON_PATHS.iter().zip(&self.0).find(|((_, listed), _)| *listed == figure);
        debug_assert!(found.is_some(), "{} is among the figures compared", figure.word());
        found.map_or(Amount::Count(0), |(_, amount)| *amount)
    }

    /// The figure of one side as a number of bytes or items.
    pub fn number(&self, figure: Figure) -> u64 {
        let number = u64::try_from(self.amount(figure).as_integer());
        debug_assert!(number.is_ok(), "only a change is negative");
        number.unwrap_or_default()
    }

    /// The change of the figure in bytes or items, in the result of `Self::change_to`.
    pub fn change(&self, figure: Figure) -> i64 {
        saturated(self.amount(figure).as_integer())
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self::new(MemoryState::default(), Peak::default(), 0)
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = JSON_PATHS.iter().zip(&self.0).map(|((at, _), it)| (*at, *it)).collect();
        NestedFigures(&rows).serialize(serializer)
    }
}

/// Serializes amounts by path, such as `segments.small.count`, as nested objects.
struct NestedFigures<'a>(&'a [(&'static str, Amount)]);

impl Serialize for NestedFigures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let head = |path: &'static str| path.split_once('.').map_or(path, |(head, _)| head);
        let mut map = serializer.serialize_map(None)?;
        for rows in self.0.chunk_by(|a, b| head(a.0) == head(b.0)) {
            let inner: Vec<_> =
                rows.iter().filter_map(|(path, amount)| Some((path.split_once('.')?.1, *amount))).collect();
            match rows {
                [(path, amount)] if inner.is_empty() => map.serialize_entry(path, amount)?,
                [(path, _), ..] => map.serialize_entry(head(path), &NestedFigures(&inner))?,
                [] => {}
            }
        }
        map.end()
    }
}

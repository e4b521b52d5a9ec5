//! The rows of the catalogue.

use serde::{Serialize, Serializer};

use super::{Amount, MemoryState, Unit};

/// A limit on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureLimit {
    /// Key in `oomscope.toml`; figures with the same key share the limit.
    pub key: &'static str,
    /// Example value, in the syntax of `oomscope.toml`.
    pub example: &'static str,
    /// The limited quantity, as a phrase.
    pub meaning: &'static str,
}

/// Declares every figure once: variant, name, unit, meaning, optional limit (key, example, addition to the meaning) and
/// value in a memory state, unless it is a figure of the whole recording. Names and keys are stable.
macro_rules! catalogue {
    (
        $state:ident:
        $($Figure:ident $word:literal $unit:ident
            $meaning:literal
            $(limit($key:literal, $example:literal $(, $when:literal)?))?
            $(=> $read:expr)?;)*
    ) => {
        /// A figure of a device.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[allow(clippy::doc_markdown, reason = "a meaning is also printed as plain text")]
        pub enum Figure {
            $(#[doc = $meaning] $Figure,)*
        }

        impl Figure {
            /// All figures, in the order in which findings are reported.
            pub const ALL: &[Self] = &[$(Self::$Figure,)*];

            /// The name, in kebab-case.
            pub fn word(self) -> &'static str {
                match self { $(Self::$Figure => $word,)* }
            }

            /// The unit of its amounts.
            pub fn unit(self) -> Unit {
                match self { $(Self::$Figure => Unit::$unit,)* }
            }

            /// The meaning, as a phrase.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$Figure => $meaning,)* }
            }

            /// The limit on it, if it can have one.
            pub fn limit(self) -> Option<FigureLimit> {
                match self {
                    $($(Self::$Figure => Some(FigureLimit {
                        key: $key,
                        example: $example,
                        meaning: concat!($meaning $(, $when)?),
                    }),)?)*
                    _ => None,
                }
            }

            /// Its value in a memory state; `None` if it needs a recording.
            #[inline]
            pub fn at(self, $state: &MemoryState) -> Option<Amount> {
                match self {
                    $($(Self::$Figure => Some(Amount::$unit(From::from($read))),)?)*
                    _ => None,
                }
            }
        }
    };
}

catalogue! {
    state:
    GapRatio "gap-ratio" Ratio
        "Share of reserved memory that is not allocated"
        limit("max-gap-ratio", "\"30%\"", ", at the snapshot")
        => state.gap_ratio();
    InactiveSplitRatio "inactive-split-ratio" Ratio
        "Share of reserved memory that is free in partly used segments"
        limit("max-inactive-split-ratio", "\"25%\"")
        => state.inactive_split_ratio();
    Fragmentation "fragmentation" Ratio
        "Share of reserved memory that is free but that empty_cache() would not release"
        limit("max-fragmentation", "\"20%\"", ": the one for a gate")
        => state.stranded_ratio();
    ExternalRatio "external-ratio" Ratio
        "Share of free memory outside the largest free block"
        => state.external_ratio();
    Reserved "reserved" Bytes
        "Reserved memory"
        => state.reserved;
    Allocated "allocated" Bytes
        "Memory in live blocks"
        => state.blocks.active_allocated.bytes;
    Pending "pending" Bytes
        "Memory that the program freed but another stream may still use"
        => state.blocks.active_pending_free.bytes;
    Active "active" Bytes
        "Allocated and pending memory"
        => state.active();
    Requested "requested" Bytes
        "Requested bytes of the allocated and pending blocks"
        => state.requested;
    Rounding "rounding" Bytes
        "Bytes of allocated and pending blocks beyond the requested bytes"
        => state.rounding;
    Free "free" Bytes
        "Free memory"
        => state.blocks.inactive.bytes;
    Releasable "releasable" Bytes
        "Free memory that empty_cache() would release to the device"
        => state.releasable;
    Stranded "stranded" Bytes
        "Free memory that empty_cache() would not release: beside live blocks, or in a private pool"
        => state.stranded();
    InactiveSplit "inactive-split" Bytes
        "Free memory in segments that are partly in use; not of expandable segments"
        => state.inactive_split;
    LargestFreeBlock "largest-free-block" Bytes
        "The largest free block of any pool and stream"
        => state.largest_free_block;
    PrivateFree "private-free" Bytes
        "The part of the stranded memory that is in private pools"
        => state.private_free;
    PrivateReserved "private-reserved" Bytes
        "Reserved memory of private pools"
        => state.private_reserved;
    Segments "segments" Count
        "Segments: ranges of memory reserved on the device"
        => state.segments.count;
    SmallSegments "small-segments" Count
        "Segments of small pools"
        => state.segments.small.count;
    SmallSegmentMemory "small-segment-memory" Bytes
        "Memory in segments of small pools"
        => state.segments.small.bytes;
    LargeSegments "large-segments" Count
        "Segments of large pools"
        => state.segments.large.count;
    LargeSegmentMemory "large-segment-memory" Bytes
        "Memory in segments of large pools"
        => state.segments.large.bytes;
    ExpandableSegments "expandable-segments" Count
        "Mapped ranges of expandable segments, of small and of large pools"
        => state.segments.expandable.count;
    ExpandableSegmentMemory "expandable-segment-memory" Bytes
        "Memory in mapped ranges of expandable segments"
        => state.segments.expandable.bytes;
    AllocatedBlocks "allocated-blocks" Count
        "Live blocks"
        => state.blocks.active_allocated.count;
    PendingBlocks "pending-blocks" Count
        "Blocks that the program freed but another stream may still use"
        => state.blocks.active_pending_free.count;
    FreeBlocks "free-blocks" Count
        "Free blocks"
        => state.blocks.inactive.count;
    PeakReserved "peak-reserved" Bytes
        "Peak reserved memory of the recording"
        limit("max-peak-reserved", "\"72GiB\"");
    PeakAllocated "peak-allocated" Bytes
        "Peak allocated memory of the recording"
        limit("max-peak-allocated", "\"65GiB\"");
    Ooms "ooms" Count
        "Number of failed requests in the recording"
        limit("max-ooms", "0");
    StepGrowth "step-growth" Bytes
        "Growth of memory per training step, or per iteration of another loop"
        limit("max-step-growth", "\"1MiB\"");
    GrowthPeakAllocated "growth-peak-allocated" Bytes
        "Growth of the peak of allocated memory over the baseline, replayed from an empty pool"
        limit("max-growth", "\"2GiB\"");
    GrowthPeakReserved "growth-peak-reserved" Bytes
        "Growth of the peak of reserved memory over the baseline, replayed from an empty pool"
        limit("max-growth", "\"2GiB\"");
    GrowthRatioPeakAllocated "growth-ratio-peak-allocated" Ratio
        "The growth of the peak of allocated memory, relative to the baseline"
        limit("max-growth-ratio", "\"5%\"");
    GrowthRatioPeakReserved "growth-ratio-peak-reserved" Ratio
        "The growth of the peak of reserved memory, relative to the baseline"
        limit("max-growth-ratio", "\"5%\"");
}

impl Figure {
    /// Its JSON key: the name with underscores, and a suffix for bytes.
    pub fn json_key(self) -> String {
        let unit = if self.unit() == Unit::Bytes { "_bytes" } else { "" };
        format!("{}{unit}", self.word().replace('-', "_"))
    }

    /// Whether it compares with an earlier run.
    pub fn needs_baseline(self) -> bool {
        self.limit().is_some_and(|limit| limit.key.starts_with("max-growth"))
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

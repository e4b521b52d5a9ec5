//! The rows: every figure once.

use serde::{Serialize, Serializer};

use super::recording::{FigureSource, Reading, growth, growth_ratio};
use super::{Amount, MemoryState, Unit};

/// A limit on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRow {
    /// The key of `oomscope.toml`; figures with the same key are limited together.
    pub key: &'static str,
    /// A value, as `oomscope.toml` has it.
    pub example: &'static str,
    /// What is held against it, in a phrase.
    pub meaning: &'static str,
}

/// Declares every figure once: its name, its word, its unit, its meaning, the limit that may be set on it
/// (key, example, what the meaning leaves open), and how it is read. Words and keys are stable.
macro_rules! catalogue {
    (
        at_a_moment($state:ident) {
            $($moment:ident $moment_word:literal $moment_unit:ident
                $moment_meaning:literal
                $(limit($moment_key:literal, $moment_example:literal $(, $moment_when:literal)?))? => $moment_read:expr;)*
        }
        of_the_recording($recording:ident) {
            $($time:ident $time_word:literal $time_unit:ident
                $time_meaning:literal
                $(limit($time_key:literal, $time_example:literal $(, $time_when:literal)?))? => $time_read:expr;)*
        }
    ) => {
        /// A figure of a device.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[allow(clippy::doc_markdown, reason = "a meaning is also printed as plain text")]
        pub enum Figure {
            $(#[doc = $moment_meaning] $moment,)*
            $(#[doc = $time_meaning] $time,)*
        }

        impl Figure {
            /// All of them; findings are reported in this order.
            pub const ALL: &[Self] = &[$(Self::$moment,)* $(Self::$time,)*];

            /// Its name, in kebab-case.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$moment => $moment_word,)*
                    $(Self::$time => $time_word,)*
                }
            }

            /// What it is measured in.
            pub fn unit(self) -> Unit {
                match self {
                    $(Self::$moment => Unit::$moment_unit,)*
                    $(Self::$time => Unit::$time_unit,)*
                }
            }

            /// What it is, in a phrase.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$moment => $moment_meaning,)*
                    $(Self::$time => $time_meaning,)*
                }
            }

            /// The limit that may be set on it.
            pub fn limit(self) -> Option<LimitRow> {
                match self {
                    $($(Self::$moment => Some(LimitRow {
                        key: $moment_key,
                        example: $moment_example,
                        meaning: concat!($moment_meaning $(, $moment_when)?),
                    }),)?)*
                    $($(Self::$time => Some(LimitRow {
                        key: $time_key,
                        example: $time_example,
                        meaning: concat!($time_meaning $(, $time_when)?),
                    }),)?)*
                    _ => None,
                }
            }

            /// Reads it at a moment; `None` for one of a recorded time.
            #[inline]
            pub fn at(self, $state: &MemoryState) -> Option<Amount> {
                match self {
                    $(Self::$moment => Some(Amount::$moment_unit(From::from($moment_read))),)*
                    _ => None,
                }
            }

            /// Reads one of a recorded time; `None` for one of a moment.
            fn over(self, $recording: &dyn FigureSource) -> Option<Reading> {
                match self {
                    $(Self::$time => {
                        let read = || Ok(Amount::$time_unit(From::from($time_read)));
                        Some(read())
                    })*
                    _ => None,
                }
            }
        }
    };
}

catalogue! {
    at_a_moment(state) {
        GapRatio "gap-ratio" Ratio
            "Share of reserved memory that is not allocated"
            limit("max-gap-ratio", "\"30%\"", ", at the snapshot")
            => state.gap_ratio();
        InactiveSplitRatio "inactive-split-ratio" Ratio
            "Share of reserved memory that is free in partly used segments"
            limit("max-inactive-split-ratio", "\"25%\"")
            => state.inactive_split_ratio();
        StrandedRatio "stranded-ratio" Ratio
            "Share of reserved memory that is free but that empty_cache() would not give back"
            limit("max-stranded-ratio", "\"20%\"")
            => state.stranded_ratio();
        ExternalRatio "external-ratio" Ratio
            "Share of free memory outside the largest free block"
            limit("max-external-ratio", "\"90%\"")
            => state.external_ratio();
        RoundingRatio "rounding-ratio" Ratio
            "Share of the bytes in use that is rounding"
            limit("max-rounding-ratio", "\"10%\"")
            => state.rounding_ratio();
        Reserved "reserved" Bytes
            "Reserved memory"
            limit("max-reserved", "\"70GiB\"", " at the snapshot")
            => state.reserved;
        Allocated "allocated" Bytes
            "Memory in blocks that the program holds"
            => state.allocated;
        Pending "pending" Bytes
            "Memory that the program freed but another stream may still use"
            => state.pending;
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
            => state.free;
        Releasable "releasable" Bytes
            "Free memory that empty_cache() would give back to the device"
            => state.releasable;
        Stranded "stranded" Bytes
            "Free memory that it would not give back: beside live blocks, or in a private pool"
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
            "Segments: runs of memory held from the device"
            => state.segments.all;
        SmallSegments "small-segments" Count
            "Segments of small pools"
            => state.segments.small[0];
        SmallSegmentMemory "small-segment-memory" Bytes
            "Memory in segments of small pools"
            => state.segments.small[1];
        LargeSegments "large-segments" Count
            "Segments of large pools"
            => state.segments.large[0];
        LargeSegmentMemory "large-segment-memory" Bytes
            "Memory in segments of large pools"
            => state.segments.large[1];
        ExpandableSegments "expandable-segments" Count
            "Mapped runs of expandable segments, of small and of large pools"
            => state.segments.expandable[0];
        ExpandableSegmentMemory "expandable-segment-memory" Bytes
            "Memory in mapped runs of expandable segments"
            => state.segments.expandable[1];
        AllocatedBlocks "allocated-blocks" Count
            "Blocks that the program holds"
            => state.allocated_blocks;
        PendingBlocks "pending-blocks" Count
            "Blocks that the program freed but another stream may still use"
            => state.pending_blocks;
        FreeBlocks "free-blocks" Count
            "Free blocks"
            => state.free_blocks;
    }
    of_the_recording(recording) {
        PeakReserved "peak-reserved" Bytes
            "Peak reserved memory of the recorded time"
            limit("max-peak-reserved", "\"72GiB\"")
            => recording.peak_reserved()?;
        PeakAllocated "peak-allocated" Bytes
            "Peak allocated memory of the recorded time"
            limit("max-peak-allocated", "\"65GiB\"")
            => recording.peak_allocated()?;
        Ooms "ooms" Count
            "Number of failed requests in the recorded time"
            limit("max-ooms", "0")
            => recording.failed_requests()?;
        Retries "retries" Count
            "Number of allocation retries (PyTorch's num_alloc_retries)"
            limit("max-retries", "0")
            => recording.retries()?;
        GrowthPeakAllocated "growth-peak-allocated" Bytes
            "Growth of the peak of allocated memory over the baseline, replayed from an empty pool"
            limit("max-growth", "\"2GiB\"")
            => growth(recording.replayed_peak_allocated()?);
        GrowthPeakReserved "growth-peak-reserved" Bytes
            "Growth of the peak of reserved memory over the baseline, replayed from an empty pool"
            limit("max-growth", "\"2GiB\"")
            => growth(recording.replayed_peak_reserved()?);
        GrowthRatioPeakAllocated "growth-ratio-peak-allocated" Ratio
            "The growth of the peak of allocated memory, relative to the baseline"
            limit("max-growth-ratio", "\"5%\"")
            => growth_ratio(recording.replayed_peak_allocated()?)?;
        GrowthRatioPeakReserved "growth-ratio-peak-reserved" Ratio
            "The growth of the peak of reserved memory, relative to the baseline"
            limit("max-growth-ratio", "\"5%\"")
            => growth_ratio(recording.replayed_peak_reserved()?)?;
    }
}

impl Figure {
    /// Reads it of a device.
    pub fn read(self, of: &dyn FigureSource) -> Reading {
        let amount = self.at(&of.state()).map(Ok).or_else(|| self.over(of));
        debug_assert!(amount.is_some(), "every figure is of a moment or of a recorded time");
        amount.unwrap_or(Ok(Amount::Count(0)))
    }

    /// Its key in JSON: the word with underscores, and its unit where that is bytes.
    pub fn json_key(self) -> String {
        let unit = if self.unit() == Unit::Bytes { "_bytes" } else { "" };
        format!("{}{unit}", self.word().replace('-', "_"))
    }

    /// Whether it compares with a baseline.
    pub fn needs_baseline(self) -> bool {
        matches!(
            self,
            Self::GrowthPeakAllocated
                | Self::GrowthPeakReserved
                | Self::GrowthRatioPeakAllocated
                | Self::GrowthRatioPeakReserved
        )
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

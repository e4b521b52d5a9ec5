//! The catalogue of figures: name, unit, meaning, limit and value of each.
//!
//! Each [`Figure`] is declared once, as a row of `catalogue!`. The limits of `oomscope check`, the figures of
//! `oomscope diff`, the series of `oomscope timeline` and tables of the documentation all come from these rows, so they
//! cannot differ. In: plain quantities, as a [`MemoryState`]. Out: an [`Amount`], or none for a figure of the whole
//! recording, which `compare` reads. Knows neither snapshots nor traces.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::base::units::{count, parse_memory, parse_ratio, percent, ratio, size};
use crate::base::warning::words;

words! {
    /// The unit of a figure.
    pub enum Unit {
        /// A share of a whole, 0 to 1.
        Ratio = "ratio",
        /// On pages in binary units.
        Bytes = "bytes",
        /// A number of blocks, entries or failures.
        Count = "count",
    }
}

impl Unit {
    /// Placeholder of an amount in help texts.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Ratio => "RATIO",
            Self::Bytes => "SIZE",
            Self::Count => "N",
        }
    }

    /// Parses an amount: `30%` or `0.3`, `20GiB` or a number of bytes, or a count.
    ///
    /// # Errors
    /// A message that says what was expected.
    pub fn parse(self, text: &str) -> Result<Amount, String> {
        match self {
            Self::Ratio => parse_ratio(text).map(Amount::Ratio),
            Self::Bytes => parse_memory(text).map(|n| Amount::Bytes(n.into())),
            Self::Count => {
                let number = text.parse::<u64>().map(|n| Amount::Count(n.into()));
                number.map_err(|_| format!("'{text}' is not a count: write a number such as 0"))
            }
        }
    }
}

/// An amount or a difference of two amounts. `i128` holds any difference of two `u64`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub enum Amount {
    /// 1 is 100%.
    Ratio(f64),
    /// A number of bytes.
    Bytes(i128),
    /// A number of things.
    Count(i128),
}

impl Amount {
    /// The number, rounded above 2^53.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Ratio(ratio) => ratio,
            Self::Bytes(n) | Self::Count(n) => n as f64,
        }
    }

    /// The number of bytes or the count; 0 for a ratio.
    pub fn as_integer(self) -> i128 {
        match self {
            Self::Ratio(_) => 0,
            Self::Bytes(n) | Self::Count(n) => n,
        }
    }

    /// Subtracts an amount of the same unit.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ratio(a), Self::Ratio(b)) => Self::Ratio(a - b),
            (Self::Bytes(a), Self::Bytes(b)) => Self::Bytes(a - b),
            (Self::Count(a), Self::Count(b)) => Self::Count(a - b),
            _ => {
                debug_assert!(false, "amounts have the same unit");
                self
            }
        }
    }

    /// All digits of bytes, or a percentage with `decimals`: for two amounts that round to the same text.
    pub fn format_exactly(self, decimals: usize) -> String {
        match self {
            Self::Ratio(ratio) => format!("{:.decimals$}%", ratio * 100.0),
            Self::Bytes(bytes) => format!("{}{} bytes", sign(bytes < 0), count(magnitude(bytes))),
            Self::Count(_) => self.to_string(),
        }
    }
}

impl Serialize for Amount {
    /// A plain number, clamped to 64 bits.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Ratio(ratio) => serializer.serialize_f64(ratio),
            Self::Bytes(n) | Self::Count(n) if n < 0 => serializer.serialize_i64(i64::try_from(n).unwrap_or(i64::MIN)),
            Self::Bytes(n) | Self::Count(n) => serializer.serialize_u64(magnitude(n)),
        }
    }
}

fn sign(is_negative: bool) -> &'static str {
    if is_negative { "-" } else { "" }
}

fn magnitude(n: i128) -> u64 {
    u64::try_from(n.unsigned_abs()).unwrap_or(u64::MAX)
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ratio(ratio) => write!(f, "{}{}", sign(ratio < 0.0), percent(ratio.abs())),
            Self::Bytes(n) => write!(f, "{}{}", sign(n < 0), size(magnitude(n))),
            Self::Count(n) => write!(f, "{}{}", sign(n < 0), count(magnitude(n))),
        }
    }
}

/// A device's memory at one position. Quantities are in bytes unless noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// In segments.
    pub reserved: u64,
    /// Requested bytes of the allocated and pending blocks.
    pub requested: u64,
    /// By how much those blocks exceed their requests.
    pub rounding: u64,
    /// The largest free block of any pool and stream.
    pub largest_free_block: u64,
    /// Free memory that `empty_cache()` would release: free segments and free granules of expandable segments, of the
    /// default pool. Private pools keep their memory while in use.
    pub releasable: u64,
    /// Free memory in segments that have other blocks too; expandable segments excluded.
    pub inactive_split: u64,
    /// In segments of private pools (CUDA graphs, `MemPool`).
    pub private_reserved: u64,
    /// In free blocks of private pools.
    pub private_free: u64,
    /// Number and bytes of segments.
    pub segments: SegmentTotals,
    /// Number and bytes of blocks.
    pub blocks: BlockTotals,
}

/// A number of segments or blocks with their total size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SizedCount {
    /// Their number.
    pub count: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

impl SizedCount {
    /// Counts one more, of `bytes`.
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Segments by kind. `small` and `large` add up to `count`; `expandable` overlaps with both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SegmentTotals {
    /// Number of segments.
    pub count: u64,
    /// Segments of small pools.
    pub small: SizedCount,
    /// Segments of large pools.
    pub large: SizedCount,
    /// Mapped ranges of expandable segments, of small or large pools.
    pub expandable: SizedCount,
}

/// Blocks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockTotals {
    /// Live blocks.
    pub active_allocated: SizedCount,
    /// Freed blocks that another stream may still use.
    pub active_pending_free: SizedCount,
    /// Free blocks in the cache.
    pub inactive: SizedCount,
}

impl MemoryState {
    /// Allocated or pending.
    pub fn active(&self) -> u64 {
        self.blocks.active_allocated.bytes.saturating_add(self.blocks.active_pending_free.bytes)
    }

    /// Free memory that `empty_cache()` would not release: beside live blocks, or in a private pool.
    pub fn stranded(&self) -> u64 {
        self.blocks.inactive.bytes.saturating_sub(self.releasable)
    }

    /// 1 - allocated / reserved.
    pub fn gap_ratio(&self) -> f64 {
        remaining_ratio(self.blocks.active_allocated.bytes, self.reserved)
    }

    /// `inactive_split` / `reserved`.
    pub fn inactive_split_ratio(&self) -> f64 {
        ratio(self.inactive_split, self.reserved)
    }

    /// `stranded` / `reserved`.
    pub fn stranded_ratio(&self) -> f64 {
        ratio(self.stranded(), self.reserved)
    }

    /// 1 - largest free block / free.
    pub fn external_ratio(&self) -> f64 {
        remaining_ratio(self.largest_free_block, self.blocks.inactive.bytes)
    }

    /// `rounding` / `active`.
    pub fn rounding_ratio(&self) -> f64 {
        ratio(self.rounding, self.active())
    }
}

/// 1 - `part` / `total`; 0 if `total` is 0.
fn remaining_ratio(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { 1.0 - ratio(part, total) }
}

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
        words! {
            /// A figure of a device. Findings are reported in this order.
            #[non_exhaustive]
            #[allow(clippy::doc_markdown, reason = "a meaning is also printed as plain text")]
            pub enum Figure {
                $(#[doc = $meaning] $Figure = $word,)*
            }
        }

        impl Figure {
            /// The unit of its amounts.
            pub fn unit(self) -> Unit {
                match self { $(Self::$Figure => Unit::$unit,)* }
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

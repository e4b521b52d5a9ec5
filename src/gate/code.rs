//! What findings are about: stable words, each with its unit and its meaning.

use serde::{Serialize, Serializer};

/// Declares every code once: its name, its word, its unit, its meaning.
macro_rules! codes {
    ($($name:ident $word:literal $unit:ident $meaning:literal)*) => {
        /// What a finding is about. The words are stable: scripts and suppressions name them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = concat!("`", $word, "`: see [`Code::meaning`].")] $name,)*
        }

        impl Code {
            /// All of them, in the order in which they are reported.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word, in kebab-case.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// What is measured.
            pub fn unit(self) -> Unit {
                match self { $(Self::$name => Unit::$unit,)* }
            }

            /// What the figure is, in a phrase.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

codes! {
    GapRatio "gap-ratio" Ratio
        "Part of the reserved memory that the program does not hold, at the snapshot"
    InactiveSplitRatio "inactive-split-ratio" Ratio
        "Part of the reserved memory that is free in segments that are partly in use"
    StrandedRatio "stranded-ratio" Ratio
        "Part of the reserved memory that is free and that empty_cache() would not give back"
    ExternalRatio "external-ratio" Ratio
        "Part of the free memory that lies outside the largest free block"
    RoundingRatio "rounding-ratio" Ratio
        "Part of the blocks in use that is rounding: more than the program asked for"
    Reserved "reserved" Bytes
        "Reserved memory at the snapshot"
    PeakReserved "peak-reserved" Bytes
        "Highest reserved memory of the recorded time"
    PeakAllocated "peak-allocated" Bytes
        "Highest allocated memory of the recorded time"
    Ooms "ooms" Count
        "Requests that failed in the recorded time"
    Retries "retries" Count
        "Requests for which everything cached was given back first (num_alloc_retries)"
    GrowthPeakAllocated "growth-peak-allocated" Bytes
        "Growth of the peak of allocated memory over the baseline, replayed from an empty pool"
    GrowthPeakReserved "growth-peak-reserved" Bytes
        "Growth of the peak of reserved memory over the baseline, replayed from an empty pool"
    GrowthRatioPeakAllocated "growth-ratio-peak-allocated" Ratio
        "The growth of the peak of allocated memory, as a part of the baseline"
    GrowthRatioPeakReserved "growth-ratio-peak-reserved" Ratio
        "The growth of the peak of reserved memory, as a part of the baseline"
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// What a figure is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A part of a whole, 1 for all of it.
    Ratio,
    /// Bytes.
    Bytes,
    /// How many.
    Count,
}

/// What it means when a limit does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The gate fails.
    Fail,
    /// It is said, and the gate passes.
    Warn,
}

//! Limits: which figure, and how much at most.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::code::{Code, Unit};
use crate::units::{count, parse_ratio, parse_size, percent, size};

/// What can be limited: a flag of `oomscope check`, and a key of `oomscope.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Threshold {
    /// `max-gap-ratio`
    GapRatio,
    /// `max-inactive-split-ratio`
    InactiveSplitRatio,
    /// `max-stranded-ratio`
    StrandedRatio,
    /// `max-external-ratio`
    ExternalRatio,
    /// `max-rounding-ratio`
    RoundingRatio,
    /// `max-reserved`
    Reserved,
    /// `max-peak-reserved`
    PeakReserved,
    /// `max-peak-allocated`
    PeakAllocated,
    /// `max-ooms`
    Ooms,
    /// `max-retries`
    Retries,
    /// `max-growth`
    Growth,
    /// `max-growth-ratio`
    GrowthRatio,
}

impl Threshold {
    /// All of them, in the order of their findings.
    pub const ALL: [Self; 12] = [
        Self::GapRatio,
        Self::InactiveSplitRatio,
        Self::StrandedRatio,
        Self::ExternalRatio,
        Self::RoundingRatio,
        Self::Reserved,
        Self::PeakReserved,
        Self::PeakAllocated,
        Self::Ooms,
        Self::Retries,
        Self::Growth,
        Self::GrowthRatio,
    ];

    /// What is held against it.
    pub fn codes(self) -> &'static [Code] {
        match self {
            Self::GapRatio => &[Code::GapRatio],
            Self::InactiveSplitRatio => &[Code::InactiveSplitRatio],
            Self::StrandedRatio => &[Code::StrandedRatio],
            Self::ExternalRatio => &[Code::ExternalRatio],
            Self::RoundingRatio => &[Code::RoundingRatio],
            Self::Reserved => &[Code::Reserved],
            Self::PeakReserved => &[Code::PeakReserved],
            Self::PeakAllocated => &[Code::PeakAllocated],
            Self::Ooms => &[Code::Ooms],
            Self::Retries => &[Code::Retries],
            Self::Growth => &[Code::GrowthPeakAllocated, Code::GrowthPeakReserved],
            Self::GrowthRatio => &[Code::GrowthRatioPeakAllocated, Code::GrowthRatioPeakReserved],
        }
    }

    /// The key of `oomscope.toml`; the flag has `--` before it.
    pub fn key(self) -> &'static str {
        match self {
            Self::GapRatio => "max-gap-ratio",
            Self::InactiveSplitRatio => "max-inactive-split-ratio",
            Self::StrandedRatio => "max-stranded-ratio",
            Self::ExternalRatio => "max-external-ratio",
            Self::RoundingRatio => "max-rounding-ratio",
            Self::Reserved => "max-reserved",
            Self::PeakReserved => "max-peak-reserved",
            Self::PeakAllocated => "max-peak-allocated",
            Self::Ooms => "max-ooms",
            Self::Retries => "max-retries",
            Self::Growth => "max-growth",
            Self::GrowthRatio => "max-growth-ratio",
        }
    }

    /// Whether it takes a baseline to compare with.
    pub fn needs_baseline(self) -> bool {
        matches!(self, Self::Growth | Self::GrowthRatio)
    }

    /// What a limit is measured in.
    pub fn unit(self) -> Unit {
        self.codes().first().map_or(Unit::Count, |code| code.unit())
    }

    /// Reads a limit: `30%` or `0.3`, `20GiB` or bytes, or a number.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub fn read(self, text: &str) -> Result<Amount, String> {
        match self.unit() {
            Unit::Ratio => parse_ratio(text).map(Amount::Ratio).map_err(|e| e.to_string()),
            Unit::Bytes => parse_size(text).map(Amount::bytes).map_err(|e| e.to_string()),
            Unit::Count => {
                let number = text.parse().map(Amount::Count);
                number.map_err(|_| format!("'{text}' is not a count: write a number such as 0"))
            }
        }
    }
}

/// How much of something.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(untagged)]
pub enum Amount {
    /// A part of a whole. Below 0 for what has shrunk.
    Ratio(f64),
    /// Bytes. Below 0 for what has shrunk.
    Bytes(i64),
    /// How many.
    Count(u64),
}

impl Amount {
    /// Bytes that are not a change.
    pub fn bytes(bytes: u64) -> Self {
        Self::Bytes(i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// As a plain number.
    pub(super) fn number(self) -> f64 {
        match self {
            Self::Ratio(ratio) => ratio,
            Self::Bytes(bytes) => bytes as f64,
            Self::Count(count) => count as f64,
        }
    }

    /// Bytes in full, percents with so many decimals, for two amounts that look alike when shortened.
    pub(super) fn precise(self, decimals: usize) -> String {
        match self {
            Self::Ratio(ratio) => format!("{:.decimals$}%", ratio * 100.0),
            Self::Bytes(bytes) => format!("{}{} bytes", sign(bytes), count(bytes.unsigned_abs())),
            Self::Count(_) => self.to_string(),
        }
    }
}

fn sign(bytes: i64) -> &'static str {
    if bytes < 0 { "-" } else { "" }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ratio(ratio) if ratio < 0.0 => write!(f, "-{}", percent(-ratio)),
            Self::Ratio(ratio) => f.write_str(&percent(ratio)),
            Self::Bytes(bytes) => write!(f, "{}{}", sign(bytes), size(bytes.unsigned_abs())),
            Self::Count(n) => f.write_str(&count(n)),
        }
    }
}

/// The most that is allowed, by threshold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits(BTreeMap<Threshold, Amount>);

impl Limits {
    /// Sets one.
    pub fn set(&mut self, threshold: Threshold, most: Amount) {
        self.0.insert(threshold, most);
    }

    /// The one that is set.
    pub fn get(&self, threshold: Threshold) -> Option<Amount> {
        self.0.get(&threshold).copied()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are set.
    pub fn iter(&self) -> impl Iterator<Item = (Threshold, Amount)> + '_ {
        self.0.iter().map(|(threshold, most)| (*threshold, *most))
    }

    /// Takes over what `other` sets.
    pub(super) fn overlay(&mut self, other: &Self) {
        self.0.extend(other.iter());
    }
}

//! Amounts and their units.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::base::units::{count, parse_memory, parse_ratio, percent, size};
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

//! `--fail-on`: the growth that a script allows.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use super::summary::growth;
use crate::base::units::{parse_factor, parse_size, signed_difference, size};

/// The growth of allocated memory that is allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GrowthLimit {
    /// A share of the bytes before.
    Ratio(f64),
    /// A number of bytes.
    Bytes(u64),
}

/// A text that is not a limit.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not a limit: write growth=5% (of the figure before) or growth=512MiB")]
pub struct ParseGrowthError(String);

impl FromStr for GrowthLimit {
    type Err = ParseGrowthError;

    /// Reads `growth=5%`, `growth=0.05` or `growth=512MiB`.
    fn from_str(text: &str) -> Result<Self, ParseGrowthError> {
        let error = || ParseGrowthError(text.to_owned());
        let value = text.trim().strip_prefix("growth=").ok_or_else(error)?.trim();
        // A number without a percent sign or point is a number of bytes.
        match parse_factor(value).filter(|_| value.contains(['%', '.'])) {
            Some(ratio) => Ok(Self::Ratio(ratio)),
            // `growth=5` probably means 5%, because no block is smaller than 512 bytes.
            None => match parse_size(value) {
                Ok(1..=511) | Err(_) => Err(error()),
                Ok(bytes) => Ok(Self::Bytes(bytes)),
            },
        }
    }
}

impl GrowthLimit {
    /// The allowed growth from `before` in bytes, for a limit that is a share.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a ratio is not negative; a large one saturates"
    )]
    fn allowed(self, before: u64) -> Option<u64> {
        match self {
            Self::Ratio(ratio) => Some((ratio * before as f64) as u64),
            Self::Bytes(_) => None,
        }
    }

    /// Whether the growth from `before` to `after` exceeds the limit.
    pub fn is_exceeded(self, before: u64, after: u64) -> bool {
        let by = after.saturating_sub(before);
        match self {
            Self::Ratio(ratio) => by > 0 && by as f64 > ratio * before as f64,
            Self::Bytes(bytes) => by > bytes,
        }
    }
}

/// Allocated memory of a device at the compared position.
#[derive(Debug, Clone, Copy)]
pub struct Growth<'a> {
    /// The rank, if directories are compared.
    pub name: Option<&'a str>,
    /// Device index.
    pub device: u64,
    /// The compared position in words.
    pub moment: &'a str,
    /// Allocated bytes in the earlier snapshot.
    pub before_bytes: u64,
    /// Allocated bytes in the later snapshot; 0 if it lacks the device.
    pub after_bytes: u64,
    /// The snapshot after lacks the device.
    pub is_gone: bool,
}

/// A device that grew more than allowed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExceededGrowth {
    /// The rank; absent unless directories are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Device number.
    pub device: u64,
    /// Allocated bytes before.
    pub before_bytes: u64,
    /// Allocated bytes after.
    pub after_bytes: u64,
    /// `after_bytes` minus `before_bytes`.
    pub delta_bytes: i64,
    /// The violation in one sentence.
    pub message: String,
}

/// The result of `--fail-on`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailOn {
    /// The limit as given.
    pub limit: String,
    /// Whether a device exceeds the limit, or its growth is unknown.
    pub failed: bool,
    /// The devices that exceed the limit.
    pub failures: Vec<ExceededGrowth>,
    /// Devices and ranks that exist only before, one sentence each, because their growth is unknown; absent if none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl FailOn {
    /// Checks all growths against `limit`, given as `text`. `ranks_gone` exist only before.
    pub fn new<'a>(
        limit: GrowthLimit,
        text: impl fmt::Display,
        growths: impl Iterator<Item = Growth<'a>>,
        ranks_gone: &[String],
    ) -> Self {
        let (gone, both): (Vec<Growth<'a>>, Vec<_>) = growths.partition(|g| g.is_gone);
        let devices_gone = gone.iter().map(|g| format!("{}GPU {}", g.rank(), g.device));
        let missing: Vec<String> = (ranks_gone.iter().cloned().chain(devices_gone))
            .map(|name| format!("{name}: only before, so {text} cannot be checked"))
            .collect();
        let failures: Vec<ExceededGrowth> = both
            .into_iter()
            .filter(|g| limit.is_exceeded(g.before_bytes, g.after_bytes))
            .map(|g| ExceededGrowth {
                name: g.name.map(str::to_owned),
                device: g.device,
                before_bytes: g.before_bytes,
                after_bytes: g.after_bytes,
                delta_bytes: signed_difference(g.before_bytes, g.after_bytes),
                message: format!(
                    "{}GPU {}: allocated {} {}, more than {text} allows{}",
                    g.rank(),
                    g.device,
                    g.moment,
                    growth(g.before_bytes, g.after_bytes),
                    limit.allowed(g.before_bytes).map_or_else(String::new, |b| format!(" ({})", size(b)))
                ),
            })
            .collect();
        let failed = !(failures.is_empty() && missing.is_empty());
        Self { limit: text.to_string(), failed, failures, missing }
    }

    /// All violations, one sentence each.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        let failures = self.failures.iter().map(|failure| failure.message.as_str());
        failures.chain(self.missing.iter().map(String::as_str))
    }
}

impl Growth<'_> {
    fn rank(&self) -> String {
        self.name.map_or_else(String::new, |name| format!("{name}, "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_as_documented() {
        assert_eq!("growth=5%".parse(), Ok(GrowthLimit::Ratio(0.05)));
        assert_eq!("growth=0.05".parse(), Ok(GrowthLimit::Ratio(0.05)));
        assert_eq!("growth=512MiB".parse(), Ok(GrowthLimit::Bytes(512 << 20)));
        assert_eq!("growth=1.5GiB".parse(), Ok(GrowthLimit::Bytes(3 << 29)));
        assert_eq!("growth=0".parse(), Ok(GrowthLimit::Bytes(0)));
        for bad in
            ["", "5%", "growth", "growth=", "growth=%", "growth=-1%", "growth=nan%", "peak=5%", "growth=5x", "growth=5"]
        {
            assert!(bad.parse::<GrowthLimit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_more_than_the_limit_exceeds_it() {
        assert!(!GrowthLimit::Ratio(0.05).is_exceeded(100, 105));
        assert!(GrowthLimit::Ratio(0.05).is_exceeded(100, 106));
        assert!(!GrowthLimit::Bytes(5).is_exceeded(100, 105));
        assert!(GrowthLimit::Bytes(5).is_exceeded(100, 106));
        assert!(!GrowthLimit::Ratio(0.0).is_exceeded(100, 100));
        assert!(!GrowthLimit::Bytes(0).is_exceeded(100, 1));
        assert!(GrowthLimit::Ratio(0.5).is_exceeded(0, 1), "anything is more than a share of nothing");
    }
}

//! A factor by which sizes changed throughout, as another precision, batch or sequence causes.

use serde::Serialize;

use super::holders::DeviceHolders;
use crate::base::intern::SeededMap;
use crate::base::units::{percent, ratio};

/// Sizes count as scaled by a factor if they are this close to it, relative to it: blocks are rounded to 512 bytes.
const TOLERANCE: f64 = 0.02;
/// A factor is reported if it explains this share of the changed bytes, or more.
const MIN_EXPLAINED_RATIO: f64 = 0.8;
/// If less than this share of the bytes before is unchanged, everything is scaled.
const MAX_UNCHANGED_RATIO: f64 = 0.05;
/// Scores of attention are reported apart if they are at least this share of the scaled bytes.
const MIN_SQUARED_RATIO: f64 = 0.05;

/// A factor by which the memory of nearly all changed stacks changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scale {
    /// Bytes after divided by bytes before.
    pub factor: f64,
    /// The share of the changed bytes in stacks that changed by this factor or its square.
    pub explained_ratio: f64,
    /// The share of the changed bytes in stacks that changed by the square of the factor, as scores of attention do
    /// with the length of a sequence.
    pub squared_ratio: f64,
    /// The share of the bytes before in stacks of unchanged size, such as parameters.
    pub unchanged_ratio: f64,
}

impl DeviceHolders<'_> {
    /// The factor that explains most of the change; `None` if no factor does.
    pub(super) fn scale(&self) -> Option<Scale> {
        let (mut changed, mut unchanged, mut before_bytes) = (0_u64, 0_u64, 0_u64);
        let mut scaled: Vec<(f64, u64)> = Vec::new();
        for pair in self.pairs {
            let held = self.held(pair);
            let (before, after) = (held.before_bytes, held.after_bytes);
            before_bytes = before_bytes.saturating_add(before);
            if before == after || before > 0 && is_near(after as f64 / before as f64, 1.0) {
                unchanged = unchanged.saturating_add(before);
                continue;
            }
            let larger = before.max(after);
            changed = changed.saturating_add(larger);
            if held.before_blocks == held.after_blocks && before > 0 {
                scaled.push((after as f64 / before as f64, larger));
            }
        }
        let factor = most_frequent_factor(&scaled)?;
        let bytes_near = |factor: f64| {
            let near = scaled.iter().filter(|(by, _)| is_near(*by, factor));
            near.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
        };
        // Where scores of attention are the largest part, the length changed by the root of their factor.
        let root = factor.sqrt();
        let factor = if bytes_near(root) > 0 { root } else { factor };
        let (linear, squared) = (bytes_near(factor), bytes_near(factor * factor));
        let scale = Scale {
            factor,
            explained_ratio: ratio(linear.saturating_add(squared), changed),
            squared_ratio: ratio(squared, changed),
            unchanged_ratio: ratio(unchanged, before_bytes),
        };
        (scale.explained_ratio >= MIN_EXPLAINED_RATIO).then_some(scale)
    }
}

fn is_near(by: f64, factor: f64) -> bool {
    (by / factor - 1.0).abs() <= TOLERANCE
}

/// The factor with the most bytes.
fn most_frequent_factor(scaled: &[(f64, u64)]) -> Option<f64> {
    let mut bytes_by_factor: SeededMap<u64, u64> = SeededMap::default();
    for (by, bytes) in scaled {
        // Buckets of 2 %, so that rounding of blocks does not divide a factor.
        let bucket = (by.ln() / TOLERANCE).round().to_bits();
        let sum = bytes_by_factor.entry(bucket).or_default();
        *sum = sum.saturating_add(*bytes);
    }
    let (bucket, _) = bytes_by_factor.into_iter().max_by_key(|(bucket, bytes)| (*bytes, *bucket))?;
    let in_bucket = |by: f64| (by.ln() / TOLERANCE).round().to_bits() == bucket;
    scaled.iter().filter(|(by, _)| in_bucket(*by)).max_by_key(|(_, bytes)| *bytes).map(|(by, _)| *by)
}

impl Scale {
    /// Names the change that scales sizes like this.
    pub fn describe(&self) -> String {
        let times = times(self.factor);
        if self.unchanged_ratio < MAX_UNCHANGED_RATIO && is_near(self.factor, 0.5) {
            return format!(
                "{} of the changed memory is half as large, as 16-bit instead of 32-bit numbers are",
                percent(self.explained_ratio)
            );
        }
        if self.unchanged_ratio < MAX_UNCHANGED_RATIO
            && is_near(self.factor, 2.0)
            && self.squared_ratio < MIN_SQUARED_RATIO
        {
            return format!(
                "{} of the changed memory is twice as large, as 32-bit instead of 16-bit numbers or a doubled batch are",
                percent(self.explained_ratio)
            );
        }
        if self.squared_ratio >= MIN_SQUARED_RATIO {
            let squared = self::times(self.factor * self.factor);
            return format!(
                "{} of the changed memory is {times} or {squared} as large, as with a sequence {times} as long",
                percent(self.explained_ratio)
            );
        }
        let cause = if is_near(self.factor, 0.5) {
            "as with half the batch or sequence, or 16-bit activations".to_owned()
        } else {
            format!("as with a batch or sequence {times} as large")
        };
        format!("{} of the changed memory is {times} as large, {cause}", percent(self.explained_ratio))
    }
}

/// `4 times`, `1/4`, `1.5 times`
fn times(factor: f64) -> String {
    let number = |factor: f64| {
        let rounded = factor.round();
        if is_near(rounded, factor) { format!("{rounded:.0}") } else { format!("{factor:.2}") }
    };
    let inverse = 1.0 / factor;
    if is_near(factor, 0.5) {
        "half".to_owned()
    } else if factor < 1.0 && is_near(inverse.round(), inverse) {
        format!("1/{}", number(inverse))
    } else {
        format!("{} times", number(factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_named_by_what_causes_them() {
        let scale = Scale { factor: 0.5, explained_ratio: 0.98, squared_ratio: 0.0, unchanged_ratio: 0.0 };
        assert_eq!(
            scale.describe(),
            "98% of the changed memory is half as large, as 16-bit instead of 32-bit numbers are"
        );
        let longer = Scale { factor: 4.0, squared_ratio: 0.4, unchanged_ratio: 0.6, ..scale };
        assert_eq!(
            longer.describe(),
            "98% of the changed memory is 4 times or 16 times as large, as with a sequence 4 times as long"
        );
        let batch = Scale { factor: 0.25, unchanged_ratio: 0.6, ..scale };
        assert_eq!(
            batch.describe(),
            "98% of the changed memory is 1/4 as large, as with a batch or sequence 1/4 as large"
        );
        let odd = Scale { factor: 1.5, unchanged_ratio: 0.6, ..scale };
        assert!(odd.describe().contains("1.50 times as large"), "{}", odd.describe());
    }

    #[test]
    fn the_factor_with_the_most_bytes_is_found_despite_rounding() {
        let scaled = [(4.0, 100), (3.99, 50), (2.0, 120), (16.0, 10)];
        assert_eq!(most_frequent_factor(&scaled), Some(4.0));
        assert_eq!(most_frequent_factor(&[]), None);
    }
}

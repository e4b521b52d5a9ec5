//! Dimensions of tensors whose shapes nobody recorded.
//!
//! Attention over `n * n / 256 + 1` tokens of an image requests bytes in proportion to the square of that number. The
//! ratio of two such requests is a ratio of squares, which is unlikely to be chance, and its root gives the number of
//! tokens. Other requests of the program that have exactly this dimension then follow it too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::polynomial::Point;

/// The tokens grow with the size or with its square.
const DEGREES: [u32; 2] = [1, 2];
/// A larger constant is less likely than another power.
const MAX_OFFSET: i64 = 16;

/// A dimension of tensors: `numerator * size ^ exponent / denominator + offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dimension {
    exponent: u32,
    numerator: u64,
    denominator: u64,
    offset: i64,
}

/// Bytes in proportion to a power of a dimension, and to the size `factors` times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProductLaw {
    scale: u64,
    dimension: Dimension,
    power: u32,
    factors: u32,
}

impl Dimension {
    /// A power of the size, plus an offset that is a fraction, as a whole number at all `numbers`, the values of
    /// that power. `None` if the offset is 0 or unlikely.
    fn with_rational_offset(degree: u32, fraction: [i128; 2], numbers: &[u64]) -> Option<Self> {
        let [above, below] = fraction.map(i128::unsigned_abs);
        let common = greatest_common_divisor(above, below);
        let part = |part: u128| u64::try_from(part.checked_div(common)?).ok();
        let (above, below) = (part(above)?, part(below)?);
        // With patches of 16 x 16, the square of an image's side plus 256 is 256 times the number of tokens.
        let divides = |part: &u64| numbers.iter().all(|number| number.is_multiple_of(*part));
        let patch = if below == 1 { Some(above).filter(|above| *above > 0).filter(divides).unwrap_or(1) } else { 1 };
        let offset = i64::try_from(above / patch).ok().filter(|offset| (1..=MAX_OFFSET).contains(offset))?;
        let is_negative = (fraction[0] < 0) != (fraction[1] < 0);
        Some(Self {
            exponent: degree,
            numerator: below,
            denominator: patch,
            offset: if is_negative { -offset } else { offset },
        })
    }

    fn value_at(&self, size: u64) -> u64 {
        let power = u128::from(size.saturating_pow(self.exponent));
        let part = power * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(part).unwrap_or(u64::MAX).saturating_add_signed(self.offset)
    }
}

impl ProductLaw {
    /// The law that goes through all `points`.
    fn fit(points: &[Point], dimension: Dimension, power: u32, factors: u32) -> Option<Self> {
        let unit = Self { scale: 1, dimension, power, factors };
        let (size, bytes) = points.first()?;
        let law = Self { scale: bytes.checked_div(unit.bytes_at(*size))?, ..unit };
        points.iter().all(|(size, bytes)| law.bytes_at(*size) == *bytes).then_some(law)
    }

    pub(super) fn bytes_at(&self, size: u64) -> u64 {
        let dimensions = self.dimension.value_at(size).saturating_pow(self.power);
        self.scale.saturating_mul(dimensions).saturating_mul(size.saturating_pow(self.factors))
    }

    /// The highest power of the size.
    pub(super) fn degree(&self) -> u32 {
        self.dimension.exponent * self.power + self.factors
    }
}

/// The dimensions that explain the bytes of some requests, those of most requests first. `bytes` has those of each
/// request, in the order of `sizes`.
pub(super) fn find_hidden_dimensions(sizes: &[u64], bytes: &BTreeSet<Vec<u64>>) -> Vec<Dimension> {
    let mut counts: BTreeMap<Dimension, usize> = BTreeMap::new();
    for bytes in bytes.iter().filter(|bytes| bytes.len() == sizes.len()) {
        let points: Vec<Point> = sizes.iter().copied().zip(bytes.iter().copied()).collect();
        if let Some(dimension) = [0, 1].into_iter().find_map(|factors| root_dimension(&points, factors)) {
            *counts.entry(dimension).or_default() += 1;
        }
    }
    let mut found: Vec<(Dimension, usize)> = counts.into_iter().collect();
    found.sort_by_key(|(dimension, count)| (Reverse(*count), *dimension));
    found.into_iter().map(|(dimension, _)| dimension).collect()
}

/// The law of bytes in exact proportion to a power of `dimension`, and perhaps to the size as well.
pub(super) fn law_with(dimension: Dimension, points: &[Point]) -> Option<ProductLaw> {
    [(1, 0), (2, 0), (1, 1), (2, 1)]
        .into_iter()
        .find_map(|(power, factors)| ProductLaw::fit(points, dimension, power, factors))
}

/// The dimension whose square, times the size if `factors` is 1, the bytes are in proportion to. A dimension without an
/// offset is no hidden one: bytes in proportion to a power of the size need none.
fn root_dimension(points: &[Point], factors: u32) -> Option<Dimension> {
    let (low, high) = (points.first()?, points.last()?);
    let without_factor = |bytes: u64, other_size: u64| {
        let factor = if factors == 0 { 1 } else { other_size };
        u128::from(bytes) * u128::from(factor)
    };
    let [numerator, denominator] = [without_factor(high.1, low.0), without_factor(low.1, high.0)];
    let common = greatest_common_divisor(numerator, denominator);
    let [more, fewer] = [square_root(numerator / common.max(1))?, square_root(denominator / common.max(1))?];
    if more <= fewer {
        return None;
    }
    DEGREES.into_iter().find_map(|degree| {
        let [small, large] = [low.0, high.0].map(|number| i128::from(number).checked_pow(degree));
        let (more, fewer) = (i128::try_from(more).ok()?, i128::try_from(fewer).ok()?);
        // (large + offset) / (small + offset) = more / fewer
        let offset = fewer.checked_mul(large?)?.checked_sub(more.checked_mul(small?)?)?;
        let numbers: Vec<u64> = points.iter().map(|(size, _)| size.saturating_pow(degree)).collect();
        let dimension = Dimension::with_rational_offset(degree, [offset, more - fewer], &numbers)?;
        ProductLaw::fit(points, dimension, 2, factors).map(|_| dimension)
    })
}

fn square_root(number: u128) -> Option<u128> {
    let root = number.isqrt();
    (root * root == number).then_some(root)
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sizes: &[u64], squares: &[fn(u64) -> u64]) -> Vec<Dimension> {
        let bytes = squares.iter().map(|bytes| sizes.iter().map(|size| bytes(*size)).collect());
        find_hidden_dimensions(sizes, &bytes.collect())
    }

    fn bytes_at(dimension: Dimension, sizes: &[u64], bytes: fn(u64) -> u64, at: u64) -> Option<u64> {
        let points: Vec<Point> = sizes.iter().map(|size| (*size, bytes(*size))).collect();
        law_with(dimension, &points).map(|law| law.bytes_at(at))
    }

    #[test]
    fn squares_show_the_tokens_of_an_image() {
        let attention = |side: u64| 8 * 4 * (side * side / 256 + 1).pow(2);
        let activations = |side: u64| 3072 * (side * side / 256 + 1);
        for sizes in [&[160, 224][..], &[160, 224, 256]] {
            let dimensions = found(sizes, &[attention]);
            assert_eq!(bytes_at(dimensions[0], sizes, attention, 512), Some(attention(512)), "{dimensions:?}");
            assert_eq!(bytes_at(dimensions[0], sizes, activations, 512), Some(activations(512)));
        }
    }

    #[test]
    fn a_batch_may_grow_too() {
        let attention = |n: u64| 2 * n * (3 * n + 1).pow(2) * 16;
        let projected = |n: u64| 2 * n * (3 * n + 1) * 256;
        let dimensions = found(&[12, 20], &[attention]);
        assert_eq!(bytes_at(dimensions[0], &[12, 20], projected, 99), Some(projected(99)), "{dimensions:?}");
    }

    #[test]
    fn nothing_is_hidden_in_lines_and_powers() {
        assert_eq!(found(&[12, 20, 32], &[|n| 4096 * n, |n| 64 * n * n, |n| 512 * n + 4096, |_| 7]), []);
    }
}

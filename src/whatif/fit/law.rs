//! How the bytes of one request grow with the size.

use super::polynomial::{Point, Points, Polynomial};
use crate::base::warning::words;

words! {
    /// How bytes grow with the size.
    pub enum LawKind {
        /// The same at every size
        Constant = "constant",
        /// In proportion to the size
        Linear = "linear",
        /// In proportion to its square
        Quadratic = "quadratic",
        /// In proportion to its cube
        Cubic = "cubic",
        /// In proportion to its fourth power, as attention over the pixels of an image grows with its side
        Quartic = "quartic",
        /// A constant part and a part in proportion to the size
        Line = "line",
        /// A part in proportion to its square, and others
        Parabola = "parabola",
        /// A line that approximates the recorded sizes
        Near = "near-line",
    }
}

/// The highest power of bytes that the data of each step decides: attention over a length.
const MAX_NEAR_DEGREE: u32 = 2;

/// The highest power that is tried.
const MAX_DEGREE: u32 = 4;

/// The bytes of one request as a function of the size. Unless it is an approximation, it is exact at the recorded
/// sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Law {
    /// The bytes of `point`, scaled by `(n / point) ^ degree`.
    Power {
        degree: u32,
        point: Point,
    },
    Polynomial(Polynomial),
}

impl Law {
    /// The simplest law through `points`, whose sizes all differ; `None` for fewer than two.
    pub(super) fn fit(points: &[Point]) -> Option<Self> {
        let largest = *points.iter().max()?;
        if points.len() < 2 {
            return None;
        }
        let is_exact = |degree: &u32| points.iter().all(|point| is_power_through(*degree, largest, *point));
        if let Some(degree) = (0..=MAX_DEGREE).find(is_exact) {
            return Some(Self::Power { degree, point: largest });
        }
        let points = Points { all: points, largest };
        let (sparse, dense) = (points.fit_sparse(), points.fit_dense());
        let certain = sparse.filter(|sum| !sum.is_guess).or(dense.filter(|sum| sum.is_exact));
        certain.or(sparse).or(dense).map(Self::Polynomial)
    }

    /// The power of the size nearest to the smallest and the largest of `points`, whose bytes the data of each step
    /// decides. It goes through the largest.
    pub(super) fn near_power(points: &[Point]) -> Self {
        let fewest = points.iter().min().copied().unwrap_or((1, 1));
        let largest = points.iter().max().copied().unwrap_or((1, 1));
        let growth = |more: u64, fewer: u64| (more.max(1) as f64 / fewer.max(1) as f64).ln();
        let power = growth(largest.1, fewest.1) / growth(largest.0, fewest.0);
        let distance = |degree: &u32| (power - f64::from(*degree)).abs();
        let nearest = (0..=MAX_NEAR_DEGREE).min_by(|a, b| distance(a).total_cmp(&distance(b)));
        Self::Power { degree: nearest.unwrap_or(1), point: largest }
    }

    /// The bytes at `size`, at least 1.
    pub(super) fn bytes_at(&self, size: u64) -> u64 {
        match self {
            Self::Power { degree, point: (point_size, bytes) } => {
                let power = |size: u64| u128::from(size).saturating_pow(*degree);
                saturate(u128::from(*bytes).saturating_mul(power(size)) / power(*point_size).max(1))
            }
            Self::Polynomial(sum) => sum.bytes_at(size),
        }
        .max(1)
    }

    /// How bytes grow with the size.
    pub(super) fn kind(&self) -> LawKind {
        match self {
            Self::Power { degree, .. } => match degree {
                0 => LawKind::Constant,
                1 => LawKind::Linear,
                2 => LawKind::Quadratic,
                3 => LawKind::Cubic,
                _ => LawKind::Quartic,
            },
            Self::Polynomial(sum) if !sum.is_exact => LawKind::Near,
            Self::Polynomial(sum) => match sum.powers {
                0b011 => LawKind::Line,
                _ => LawKind::Parabola,
            },
        }
    }

    /// Whether it misses recorded bytes, because kernels or libraries pad them.
    pub(super) fn is_inexact(&self) -> bool {
        matches!(self, Self::Polynomial(sum) if !sum.is_exact)
    }

    /// Whether bytes depend on the size.
    pub(super) fn grows(&self) -> bool {
        self.kind() != LawKind::Constant
    }

    /// Whether other polynomials go through the recorded sizes too.
    pub(super) fn is_underdetermined(&self) -> bool {
        match self {
            Self::Polynomial(sum) => sum.is_underdetermined,
            Self::Power { .. } => false,
        }
    }

    /// Whether other curves go through the recorded sizes too, and may be far from this one at larger sizes.
    pub(super) fn is_guess(&self) -> bool {
        match self {
            Self::Polynomial(sum) => sum.is_guess,
            Self::Power { .. } => false,
        }
    }
}

fn saturate(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether bytes grow from `a` to `b` in exact proportion to this power of the size.
fn is_power_through(degree: u32, a: Point, b: Point) -> bool {
    let product = |point: Point, by: Point| u128::from(point.1).checked_mul(u128::from(by.0).checked_pow(degree)?);
    let left = product(a, b);
    left.is_some() && left == product(b, a)
}

/// Whether bytes grow from `a` to `b` in exact proportion to some power of the size, at most `most`.
pub(super) fn grows_by_power(most: u32, a: Point, b: Point) -> bool {
    (0..=most).any(|degree| is_power_through(degree, a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(points: &[Point]) -> Law {
        Law::fit(points).unwrap()
    }

    #[test]
    fn powers_are_exact() {
        for (points, kind, size, bytes) in [
            (&[(4, 100), (8, 100)][..], LawKind::Constant, 1000, 100),
            (&[(4, 100), (8, 200)], LawKind::Linear, 29, 725),
            (&[(128, 1 << 20), (256, 1 << 22)], LawKind::Quadratic, 512, 1 << 24),
            (&[(2, 8), (4, 64), (6, 216)], LawKind::Cubic, 10, 1000),
            (&[(4, 256), (8, 4096)], LawKind::Quartic, 12, 20_736),
        ] {
            let law = law(points);
            assert_eq!((law.kind(), law.bytes_at(size)), (kind, bytes), "{points:?}");
        }
    }

    #[test]
    fn two_points_make_a_line() {
        let law = law(&[(4, 1000), (8, 1400)]);
        assert_eq!((law.kind(), law.bytes_at(4), law.bytes_at(8), law.bytes_at(29)), (LawKind::Line, 1000, 1400, 3500));
        assert_eq!(law.bytes_at(1), 700);
        assert_eq!(Law::fit(&[(4, 1000)]), None);
    }

    #[test]
    fn steep_growth_from_below_zero_is_a_parabola() {
        for (product, kind) in [
            ((|size| (100 * size + 7) * (100 * size + 7) * 4) as fn(u64) -> u64, LawKind::Parabola),
            (|size| (16 * size - 2) * (16 * size - 2), LawKind::Parabola),
            (|size| (size - 1) * 1000, LawKind::Line),
        ] {
            let law = law(&[(4, product(4)), (8, product(8))]);
            assert!(law.is_guess() && law.kind() == kind, "{law:?}");
            assert!(law.bytes_at(29).abs_diff(product(29)) * 1000 < product(29), "{law:?}: {}", law.bytes_at(29));
        }
        assert!(!law(&[(4, 3996), (8, 7996)]).is_guess());
    }

    #[test]
    fn falling_lines_end_at_one_byte() {
        assert_eq!(law(&[(4, 1000), (8, 500)]).bytes_at(100), 1);
    }

    #[test]
    fn three_points_separate_a_line_from_a_parabola() {
        assert_eq!(law(&[(1, 13), (2, 23), (4, 43)]).kind(), LawKind::Line);
        let mut curve = vec![(10, 110), (20, 420), (40, 1640)];
        for more in [50, 60] {
            let curved = law(&curve);
            assert_eq!((curved.kind(), curved.bytes_at(80)), (LawKind::Parabola, 6480));
            curve.push((more, more * (more + 1)));
        }
        // Padded to multiples of 64.
        let padded = law(&[(100, 6400), (200, 12_800), (301, 19_328)]);
        assert_eq!(padded.kind(), LawKind::Near);
    }

    #[test]
    fn bytes_that_the_data_decides_grow_with_the_nearest_power() {
        for (points, kind) in [
            ([(4, 900), (8, 2100)], LawKind::Linear),
            ([(4, 1000), (8, 3600)], LawKind::Quadratic),
            ([(4, 1000), (8, 1100)], LawKind::Constant),
            ([(4, 1000), (8, 900)], LawKind::Constant),
            ([(4, 1000), (8, 100_000)], LawKind::Quadratic),
        ] {
            let law = Law::near_power(&points);
            assert_eq!((law.kind(), law.bytes_at(8)), (kind, points[1].1), "{points:?}");
        }
    }

    #[test]
    fn nothing_overflows() {
        let huge = law(&[(4, u64::MAX / 2), (8, u64::MAX)]);
        assert_eq!(huge.bytes_at(u64::MAX), u64::MAX);
        assert!(law(&[(1, 1), (2, u64::MAX)]).bytes_at(u64::MAX) > 1 << 60);
    }

    proptest::proptest! {
        #[test]
        fn recorded_points_are_exact(
            a in 1u64..5000, more in 1u64..5000, x in 1u64..1 << 40, y in 1u64..1 << 40,
        ) {
            let points = [(a, x), (a + more, y)];
            let law = law(&points);
            assert_eq!(points.map(|(size, _)| law.bytes_at(size)), points.map(|(_, bytes)| bytes));
        }
    }
}

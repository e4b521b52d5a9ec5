//! How the bytes of one request grow with the size.

use super::chunks::Chunks;
use super::near_power::NearPower;
use super::polynomial::{Exponents, Point, Points, Polynomial};
use super::shape_law::ShapeLaw;
use super::size::Numbers;
use crate::base::warning::words;

words! {
    /// How bytes grow with one number of the size.
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

/// Few points of random data are often near another power than theirs.
const MUCH_NEARER: f64 = 16.0;

/// The highest power that is tried.
const MAX_DEGREE: u32 = 4;

/// The bytes of one request as a function of the size. Unless it is an approximation, it is exact at the recorded
/// sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Law {
    /// The bytes of `point`, scaled by `(n / point) ^ degree` for each number.
    Power {
        degrees: Exponents,
        point: Point,
    },
    Polynomial(Polynomial),
    /// The product of the dimensions of a tensor whose shapes are known, or follow from its bytes at three sizes.
    Shape(ShapeLaw),
    /// The same, if its dimensions follow from its bytes at only two sizes. Padded lengths may have them too.
    LikelyShape(ShapeLaw),
    /// In proportion to the last chunk of the data, which is at most `full_bytes`.
    LastChunk {
        full_bytes: u64,
        chunks: Chunks,
    },
}

impl Law {
    /// The simplest law through `points`, whose sizes all differ; `None` for fewer than two.
    pub(super) fn fit(points: &[Point]) -> Option<Self> {
        let largest = *points.iter().max_by_key(|(size, _)| size.map(u128::from).iter().product::<u128>())?;
        if points.len() < 2 {
            return None;
        }
        let points = Points::new(points, largest);
        let max_degrees = points.values.map(|values| if values > 1 { MAX_DEGREE } else { 0 });
        let mut candidates: Vec<Exponents> =
            (0..=max_degrees[0]).flat_map(|i| (0..=max_degrees[1]).map(move |j| [i, j])).collect();
        candidates.sort_by_key(|[i, j]| (i + j, *j));
        let is_exact =
            |degrees: &&Exponents| points.all.iter().all(|point| is_power_through(**degrees, largest, *point));
        if let Some(degrees) = candidates.iter().find(is_exact) {
            return Some(Self::Power { degrees: *degrees, point: largest });
        }
        let (sparse, dense) = (points.fit_sparse(), points.fit_dense());
        let certain = sparse.filter(|sum| !sum.is_guess).or(dense.filter(|sum| sum.is_exact));
        certain.or(sparse).or(dense).map(Self::Polynomial)
    }

    /// The power of the size nearest to `points`, whose bytes the data decides: `common` of most of such requests, unless
    /// another comes much nearer.
    pub(super) fn near_power(points: &[Point], common: Exponents) -> Option<Self> {
        let size = points.iter().max()?.0;
        let common = NearPower::with_exponents(points, common);
        let own = NearPower::fit(points, 0).filter(|own| own.squares * MUCH_NEARER < common.squares);
        let near = own.unwrap_or(common);
        Some(Self::Power { degrees: near.exponents, point: (size, near.bytes_at(size)) })
    }

    /// The bytes at `size`, at least 1.
    pub(super) fn bytes_at(&self, size: Numbers) -> u64 {
        match self {
            Self::Power { degrees, point: (point_size, bytes) } => {
                let power = |size: Numbers| {
                    let [a, b] = [0, 1].map(|at| u128::from(size[at]).saturating_pow(degrees[at]));
                    a.saturating_mul(b)
                };
                saturate(u128::from(*bytes).saturating_mul(power(size)) / power(*point_size).max(1))
            }
            Self::Polynomial(sum) => sum.bytes_at(size),
            Self::Shape(shape) | Self::LikelyShape(shape) => shape.bytes_at(size),
            Self::LastChunk { full_bytes, chunks } => {
                let [part, full] = chunks.last_part(size[0]);
                saturate(u128::from(*full_bytes) * u128::from(part) / u128::from(full).max(1))
            }
        }
        .max(1)
    }

    /// How bytes grow with one of the two numbers.
    pub(super) fn kind(&self, dimension: usize) -> LawKind {
        match self {
            Self::Power { degrees, .. } => match degrees[dimension] {
                0 => LawKind::Constant,
                1 => LawKind::Linear,
                2 => LawKind::Quadratic,
                3 => LawKind::Cubic,
                _ => LawKind::Quartic,
            },
            Self::LastChunk { .. } => LawKind::Constant,
            Self::Polynomial(sum) if !sum.is_exact => LawKind::Near,
            Self::Polynomial(sum) => match sum.exponents(dimension) {
                0b001 => LawKind::Constant,
                0b010 => LawKind::Linear,
                0b100 => LawKind::Quadratic,
                0b011 => LawKind::Line,
                _ => LawKind::Parabola,
            },
            Self::Shape(shape) | Self::LikelyShape(shape) => match shape.degree(dimension) {
                (0, _) => LawKind::Constant,
                (1, true) => LawKind::Line,
                (_, true) => LawKind::Parabola,
                (1, false) => LawKind::Linear,
                (2, false) => LawKind::Quadratic,
                (3, false) => LawKind::Cubic,
                (_, false) => LawKind::Quartic,
            },
        }
    }

    /// Whether it misses recorded bytes, because kernels or libraries pad them.
    pub(super) fn is_inexact(&self) -> bool {
        matches!(self, Self::Polynomial(sum) if !sum.is_exact)
    }

    /// Whether bytes rise and fall with the rest that the last chunk takes.
    pub(super) fn follows_last_chunk(&self) -> bool {
        matches!(self, Self::LastChunk { .. })
    }

    /// Whether bytes depend on a number.
    pub(super) fn grows(&self) -> bool {
        (0..2).any(|dimension| self.kind(dimension) != LawKind::Constant)
    }

    /// Whether other polynomials go through the recorded sizes too.
    pub(super) fn is_underdetermined(&self) -> bool {
        match self {
            Self::Polynomial(sum) => sum.is_underdetermined,
            Self::LikelyShape(_) => true,
            Self::Power { .. } | Self::Shape(_) | Self::LastChunk { .. } => false,
        }
    }

    /// Whether other curves go through the recorded sizes too, and may be far from this one at larger sizes.
    pub(super) fn is_guess(&self) -> bool {
        match self {
            Self::Polynomial(sum) => sum.is_guess,
            Self::LikelyShape(_) => true,
            Self::Power { .. } | Self::Shape(_) | Self::LastChunk { .. } => false,
        }
    }
}

fn saturate(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether bytes grow from `a` to `b` in exact proportion to these powers of the numbers.
fn is_power_through(degrees: Exponents, a: Point, b: Point) -> bool {
    let product = |point: Point, by: Point| {
        let candidates = [0, 1].map(|at| u128::from(by.0[at]).checked_pow(degrees[at]));
        u128::from(point.1).checked_mul(candidates[0]?)?.checked_mul(candidates[1]?)
    };
    let left = product(a, b);
    left.is_some() && left == product(b, a)
}

/// Whether bytes grow from `a` to `b` in exact proportion to some power of each number that differs, at most `most`.
pub(super) fn grows_by_powers(most: u32, a: Point, b: Point) -> bool {
    let max_degrees = [0, 1].map(|at| if a.0[at] == b.0[at] { 0 } else { most });
    (0..=max_degrees[0]).any(|i| (0..=max_degrees[1]).any(|j| is_power_through([i, j], a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(points: &[(u64, u64)]) -> Option<Law> {
        Law::fit(&points.iter().map(|(size, bytes)| ([*size, 1], *bytes)).collect::<Vec<_>>())
    }

    fn law(points: &[(u64, u64)]) -> Law {
        through(points).unwrap()
    }

    /// Laws of a single number.
    trait Single {
        fn one(&self, size: u64) -> u64;
    }

    impl Single for Law {
        fn one(&self, size: u64) -> u64 {
            self.bytes_at([size, 1])
        }
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
            assert_eq!((law.kind(0), law.one(size)), (kind, bytes), "{points:?}");
        }
    }

    #[test]
    fn two_points_make_a_line() {
        let law = law(&[(4, 1000), (8, 1400)]);
        assert_eq!((law.kind(0), law.one(4), law.one(8), law.one(29)), (LawKind::Line, 1000, 1400, 3500));
        assert_eq!(law.one(1), 700);
        assert_eq!(through(&[(4, 1000)]), None);
    }

    #[test]
    fn steep_growth_from_below_zero_is_a_parabola() {
        for (product, kind) in [
            ((|size| (100 * size + 7) * (100 * size + 7) * 4) as fn(u64) -> u64, LawKind::Parabola),
            (|size| (16 * size - 2) * (16 * size - 2), LawKind::Parabola),
            (|size| (size - 1) * 1000, LawKind::Line),
        ] {
            let law = law(&[(4, product(4)), (8, product(8))]);
            assert!(law.is_guess() && law.kind(0) == kind, "{law:?}");
            assert!(law.one(29).abs_diff(product(29)) * 1000 < product(29), "{law:?}: {}", law.one(29));
        }
        assert!(!law(&[(4, 3996), (8, 7996)]).is_guess());
    }

    #[test]
    fn falling_lines_end_at_one_byte() {
        assert_eq!(law(&[(4, 1000), (8, 500)]).one(100), 1);
    }

    #[test]
    fn three_points_separate_a_line_from_a_parabola() {
        assert_eq!(law(&[(1, 13), (2, 23), (4, 43)]).kind(0), LawKind::Line);
        let mut curve = vec![(10, 110), (20, 420), (40, 1640)];
        for more in [50, 60] {
            let curved = law(&curve);
            assert_eq!((curved.kind(0), curved.one(80)), (LawKind::Parabola, 6480));
            curve.push((more, more * (more + 1)));
        }
        // Padded to multiples of 64.
        let padded = law(&[(100, 6400), (200, 12_800), (301, 19_328)]);
        assert_eq!(padded.kind(0), LawKind::Near);
    }

    #[test]
    fn nothing_overflows() {
        let huge = law(&[(4, u64::MAX / 2), (8, u64::MAX)]);
        assert_eq!(huge.one(u64::MAX), u64::MAX);
        assert!(law(&[(1, 1), (2, u64::MAX)]).one(u64::MAX) > 1 << 60);
    }

    proptest::proptest! {
        #[test]
        fn recorded_points_are_exact(
            a in 1u64..5000, more in 1u64..5000, x in 1u64..1 << 40, y in 1u64..1 << 40,
        ) {
            let points = [(a, x), (a + more, y)];
            let law = law(&points);
            assert_eq!(points.map(|(size, _)| law.one(size)), points.map(|(_, bytes)| bytes));
        }
    }
}

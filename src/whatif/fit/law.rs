//! How the bytes of one request grow with the size.

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

/// A size, and the bytes of one request at it.
pub(super) type Point = (u64, u64);

/// The powers of the size that a polynomial may have: 0 to 2. A set of them is a `u32` with a bit for each.
const POWERS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Polynomial {
    /// A size and the bytes there. Values are computed as differences from them, which keeps large numbers exact.
    origin: (u64, f64),
    /// The powers with a coefficient.
    pub(super) powers: u32,
    /// The coefficient of each power. That of the constant is unused, because `origin` replaces it.
    coefficients: [f64; POWERS],
    /// It goes through all points.
    pub(super) is_exact: bool,
    /// It has as many powers as there are points, so other polynomials go through the same points.
    pub(super) is_underdetermined: bool,
    /// It is underdetermined and not a plausible line, so the others may be far from it at larger sizes.
    pub(super) is_guess: bool,
}

/// Kernels pad rows, tables and workspaces by up to this share.
const PADDING_TOLERANCE: f64 = 0.02;
/// The powers of a line, 0 and 1.
const LINE: u32 = 0b011;
/// The powers of a parabola that is 0 at size 0.
const STEEP: u32 = 0b110;
/// Sets of two and of three powers, simplest first.
const SPARSE: [u32; 4] = [LINE, 0b101, STEEP, 0b111];

fn powers_of(set: u32) -> impl Iterator<Item = usize> {
    (0..POWERS).filter(move |power| set >> power & 1 == 1)
}

fn evaluate(power: usize, size: u64) -> f64 {
    (0..power).map(|_| size as f64).product()
}

impl Polynomial {
    /// The bytes at `size`, at least 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn bytes_at(&self, size: u64) -> u64 {
        (self.value_at(size).round() as u64).max(1)
    }

    fn value_at(&self, size: u64) -> f64 {
        let (origin, bytes) = self.origin;
        let increase = powers_of(self.powers & !1)
            .map(|power| self.coefficients[power] * (evaluate(power, size) - evaluate(power, origin)));
        bytes + increase.sum::<f64>()
    }
}

/// The points that a polynomial is fitted to, at different sizes.
pub(super) struct Points<'p> {
    pub(super) all: &'p [Point],
    pub(super) largest: Point,
}

impl Points<'_> {
    /// The simplest polynomial that goes through all points, with at least one point more than terms; one that is no
    /// guess, if there is any.
    pub(super) fn fit_sparse(&self) -> Option<Polynomial> {
        let has_few_terms = |powers: &u32| (powers.count_ones() as usize) < self.all.len();
        let candidates = SPARSE.into_iter().filter(has_few_terms).filter_map(|powers| self.fit_powers(powers));
        let mut guess = None;
        for sum in candidates.filter(|sum| sum.is_exact) {
            if !sum.is_guess {
                return Some(sum);
            }
            guess = guess.or(Some(sum));
        }
        guess
    }

    /// A line, or a parabola if bytes rise steeply.
    pub(super) fn fit_dense(&self) -> Option<Polynomial> {
        let steep = if self.rises_steeply() { self.fit_powers(STEEP) } else { None };
        steep.or_else(|| self.fit_powers(LINE))
    }

    /// Whether there are only two points, and bytes grow with the square of the size rather than in proportion. Bytes
    /// are products of lengths, which have no large negative parts, so a line that starts far below zero is not
    /// plausible.
    fn rises_steeply(&self) -> bool {
        let [one, other] = self.all else { return false };
        let (smaller, fewer_bytes) = *one.min(other);
        let (size, bytes) = self.largest;
        bytes as f64 / fewer_bytes as f64 > (size as f64 / smaller as f64).powf(1.5)
    }

    /// The least-squares polynomial with these powers; `None` if the points do not tell them apart.
    fn fit_powers(&self, powers: u32) -> Option<Polynomial> {
        let rows = self.all.iter();
        let mut columns: Vec<Vec<f64>> = powers_of(powers & !1)
            .map(|power| rows.clone().map(|(size, _)| evaluate(power, *size)).collect())
            .collect();
        columns.push(rows.map(|(_, bytes)| *bytes as f64).collect());
        if powers & 1 == 1 {
            for column in &mut columns {
                let mean = column.iter().sum::<f64>() / column.len() as f64;
                for value in column {
                    *value -= mean;
                }
            }
        }
        let solution = least_squares(columns)?;
        let mut coefficients = [0.0; POWERS];
        for (power, factor) in powers_of(powers & !1).zip(solution) {
            coefficients[power] = factor;
        }
        let (size, bytes) = self.largest;
        let origin = (size, bytes as f64);
        let is_underdetermined = powers.count_ones() as usize >= self.all.len();
        let mut polynomial =
            Polynomial { origin, powers, coefficients, is_exact: true, is_underdetermined, is_guess: false };
        // An approximation need not go through the largest point.
        let offset = self.all.iter().map(|(size, bytes)| *bytes as f64 - polynomial.value_at(*size));
        let offset = offset.sum::<f64>() / self.all.len() as f64;
        if offset.abs() > 0.5 {
            polynomial.origin.1 += offset;
        }
        let is_negative_at_zero = polynomial.value_at(0) < -PADDING_TOLERANCE * bytes as f64;
        polynomial.is_guess = is_underdetermined && (powers != LINE || is_negative_at_zero);
        polynomial.is_exact = self.all.iter().all(|(size, bytes)| polynomial.bytes_at(*size) == *bytes);
        Some(polynomial)
    }
}

/// Solves for the factors of all columns but the last whose sum approximates the last column best; `None` if a column
/// depends on others. Uses the modified Gram-Schmidt process.
fn least_squares(mut columns: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let count = columns.len() - 1;
    let squared_norms: Vec<f64> = columns.iter().map(|column| dot(column, column)).collect();
    let mut projections = vec![vec![0.0; count + 1]; count];
    for index in 0..count {
        let (done, rest) = columns.split_at_mut(index + 1);
        let square = dot(&done[index], &done[index]);
        if square <= squared_norms[index] * COLLINEAR {
            return None;
        }
        for (column, projection) in rest.iter_mut().zip(&mut projections[index][index + 1..]) {
            *projection = dot(&done[index], column) / square;
            column.iter_mut().zip(&done[index]).for_each(|(value, of)| *value -= *projection * of);
        }
    }
    let mut solution = vec![0.0; count];
    for index in (0..count).rev() {
        let later: f64 = (index + 1..count).map(|later| projections[index][later] * solution[later]).sum();
        solution[index] = projections[index][count] - later;
    }
    Some(solution)
}

/// A column depends on others if less than this share of its squared norm remains, which may be rounding errors.
const COLLINEAR: f64 = 1e-20;

#[cfg(test)]
mod tests {
    use super::super::law::{Law, LawKind};
    use super::*;
    use proptest::prelude::*;

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

    fn learned(sizes: &[u64], of: impl Fn(u64) -> u64) -> Law {
        Law::fit(&sizes.iter().map(|size| (*size, of(*size))).collect::<Vec<_>>()).unwrap()
    }

    /// One position more than the data has: a guess with two lengths, exact with four.
    #[test]
    fn a_bend_takes_more_sizes() {
        let of = |size: u64| (size + 1) * (size + 1) * 4;
        assert!(learned(&[64, 128], of).is_guess());
        let four = learned(&[64, 128, 192, 256], of);
        assert_eq!((four.bytes_at(512), four.kind()), (of(512), LawKind::Parabola));
        assert!(!four.is_guess());
    }

    #[test]
    fn padding_is_not_taken_for_a_bend() {
        let of = |size: u64| (size * 700).next_multiple_of(2048);
        let law = learned(&[100, 170, 301], of);
        assert_eq!(law.kind(), LawKind::Near);
        let error = law.bytes_at(500).abs_diff(of(500));
        assert!(error * 100 < of(500), "{error}");
    }

    proptest! {
        #[test]
        fn recordings_are_reproduced(
            sizes in prop::collection::btree_set(1u64..5000, 2..5),
            bytes in prop::collection::vec(1u64..1 << 36, 4),
        ) {
            let points: Vec<Point> = sizes.into_iter().zip(bytes).collect();
            let law = Law::fit(&points).unwrap();
            if law.kind() != LawKind::Near {
                for (size, bytes) in &points {
                    prop_assert!(law.bytes_at(*size).abs_diff(*bytes) <= bytes / 50 + 1, "{law:?} at {size:?}");
                }
            }
        }
    }
}

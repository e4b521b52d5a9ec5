//! How the bytes of one request grow with the size.

use itertools::Itertools as _;

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
        /// A line that approximates the recorded sizes
        Near = "near-line",
    }
}

/// The maximum degree of [`Law::near_power`]: attention over a length.
const MAX_NEAR_DEGREE: u32 = 2;

/// The highest power that is tried.
const MAX_DEGREE: u32 = 4;

/// The bytes of one request as a function of the size. Unless it is an approximation, it is exact at the recorded
/// sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Law {
    curve: Curve,
    /// It goes through all points. If not, kernels or libraries pad the bytes.
    pub(super) is_exact: bool,
    /// Other curves go through the recorded sizes too.
    pub(super) is_underdetermined: bool,
    /// The bytes may be far from it at larger sizes.
    pub(super) is_guess: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Curve {
    /// The bytes of `point`, scaled by `(n / point) ^ degree`.
    Power {
        degree: u32,
        point: Point,
    },
    Line(Line),
}

/// Values are computed as differences from `origin`, a size and the bytes there, which keeps large numbers exact.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    origin: (u64, f64),
    /// Bytes for each unit of the size.
    slope: f64,
}

impl Line {
    fn value_at(self, size: u64) -> f64 {
        let (origin, bytes) = self.origin;
        bytes + self.slope * (size as f64 - origin as f64)
    }

    fn errors(self, points: &[Point]) -> impl Iterator<Item = f64> {
        points.iter().map(move |(size, bytes)| *bytes as f64 - self.value_at(*size))
    }
}

impl Law {
    /// The bytes of `point`, in proportion to a power of the size.
    pub(super) fn power(degree: u32, point: Point) -> Self {
        Self { curve: Curve::Power { degree, point }, is_exact: true, is_underdetermined: false, is_guess: false }
    }

    /// The simplest law through `points`, whose sizes all differ; `None` for fewer than two.
    pub(super) fn fit(points: &[Point]) -> Option<Self> {
        let largest = *points.iter().max()?;
        if points.len() < 2 {
            return None;
        }
        let mut degrees = 0..=MAX_DEGREE;
        if let Some(exact) = degrees.find(|degree| points.iter().all(|at| is_power_through(*degree, largest, *at))) {
            return Some(Self::power(exact, largest));
        }
        if points.len() == 2 && rises_steeply(points) {
            return Some(Self::near_power(points, largest));
        }
        Some(Self::line(points, largest))
    }

    /// The whole power of the size that best fits the smallest and the largest of `points`, whose bytes depend on the
    /// data of each step. It goes through `own`, and only near the other points.
    pub(super) fn near_power(points: &[Point], own: Point) -> Self {
        let (fewest, largest) = points.iter().copied().minmax().into_option().unwrap_or((own, own));
        let [size_growth, growth] = [(largest.0, fewest.0), (largest.1, fewest.1)]
            .map(|(more, fewer)| (more.max(1) as f64 / fewer.max(1) as f64).ln());
        let distances = (0..=MAX_NEAR_DEGREE).map(|degree| ((growth / size_growth - f64::from(degree)).abs(), degree));
        let nearest = distances.min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(1, |(_, degree)| degree);
        Self { is_underdetermined: true, is_guess: true, ..Self::power(nearest, own) }
    }

    /// The least-squares line through `points`, which are two or more.
    fn line(points: &[Point], largest: Point) -> Self {
        let count = points.len() as f64;
        let mean_size = points.iter().map(|(size, _)| *size as f64).sum::<f64>() / count;
        let mean_bytes = points.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / count;
        let (mut products, mut squares) = (0.0, 0.0);
        for (size, bytes) in points {
            let distance = *size as f64 - mean_size;
            products += distance * (*bytes as f64 - mean_bytes);
            squares += distance * distance;
        }
        let mut line = Line { origin: (largest.0, largest.1 as f64), slope: products / squares };
        // An approximation need not go through the largest point.
        let offset = line.errors(points).sum::<f64>() / count;
        if offset.abs() > 0.5 {
            line.origin.1 += offset;
        }
        let is_underdetermined = points.len() == 2;
        let tolerance = PADDING_TOLERANCE * largest.1 as f64;
        let is_guess = if is_underdetermined {
            line.value_at(0) < -tolerance
        } else {
            line.errors(points).any(|error| error.abs() > tolerance)
        };
        let law = Self { curve: Curve::Line(line), is_exact: true, is_underdetermined, is_guess };
        Self { is_exact: points.iter().all(|(size, bytes)| law.bytes_at(*size) == *bytes), ..law }
    }

    /// The bytes at `size`, at least 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn bytes_at(&self, size: u64) -> u64 {
        match self.curve {
            Curve::Power { degree, point: (point_size, bytes) } => {
                let [wanted, known] = [size, point_size].map(|size| u128::from(size).saturating_pow(degree));
                let bytes = u128::from(bytes).saturating_mul(wanted) / known.max(1);
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
            Curve::Line(line) => line.value_at(size).round() as u64,
        }
        .max(1)
    }

    /// How bytes grow with the size.
    pub(super) fn kind(&self) -> LawKind {
        match self.curve {
            Curve::Power { degree: 0, .. } => LawKind::Constant,
            Curve::Power { degree: 1, .. } => LawKind::Linear,
            Curve::Power { degree: 2, .. } => LawKind::Quadratic,
            Curve::Power { degree: 3, .. } => LawKind::Cubic,
            Curve::Power { .. } => LawKind::Quartic,
            Curve::Line(_) if self.is_exact => LawKind::Line,
            Curve::Line(_) => LawKind::Near,
        }
    }

    /// Whether bytes grow in exact proportion to a power of the size.
    pub(super) fn is_exact_power(&self) -> bool {
        matches!(self.curve, Curve::Power { .. }) && !self.is_underdetermined
    }

    /// Whether bytes depend on the size.
    pub(super) fn grows(&self) -> bool {
        self.kind() != LawKind::Constant
    }
}

/// Whether bytes grow from `a` to `b` in exact proportion to this power of the size.
fn is_power_through(degree: u32, a: Point, b: Point) -> bool {
    let [left, right] =
        [(a, b), (b, a)].map(|(point, by)| u128::from(point.1).checked_mul(u128::from(by.0).checked_pow(degree)?));
    left.is_some() && left == right
}

/// Whether bytes grow from `a` to `b` in exact proportion to some power of the size, at most `most`.
pub(super) fn grows_by_power(most: u32, a: Point, b: Point) -> bool {
    (0..=most).any(|degree| is_power_through(degree, a, b))
}

/// A size, and the bytes of one request at it.
pub(super) type Point = (u64, u64);

/// Kernels pad rows, tables and workspaces by up to this share.
const PADDING_TOLERANCE: f64 = 0.02;
/// If bytes grow with at least this power of the size, a line through two points is not plausible: bytes are products of
/// lengths, which have no large negative parts.
const STEEP_POWER: f64 = 1.5;

/// Whether bytes grow much faster than in proportion to the size.
fn rises_steeply(points: &[Point]) -> bool {
    let Some(((smaller, fewer_bytes), (size, bytes))) = points.iter().minmax().into_option() else { return false };
    *bytes as f64 / *fewer_bytes as f64 > (*size as f64 / *smaller as f64).powf(STEEP_POWER)
}

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
            assert_eq!(law.grows(), kind != LawKind::Constant, "{points:?}");
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
    fn steep_growth_and_growth_from_below_zero_are_guesses() {
        for product in [
            (|size| (100 * size + 7) * (100 * size + 7) * 4) as fn(u64) -> u64,
            |size| (16 * size - 2) * (16 * size - 2),
            |size| (size - 1) * 1000,
        ] {
            let law = law(&[(4, product(4)), (8, product(8))]);
            assert!(law.is_guess, "{law:?}");
            assert!(law.bytes_at(29).abs_diff(product(29)) * 20 < product(29), "{law:?}: {}", law.bytes_at(29));
        }
        assert!(!law(&[(4, 3996), (8, 7996)]).is_guess);
    }

    #[test]
    fn falling_lines_end_at_one_byte() {
        assert_eq!(law(&[(4, 1000), (8, 500)]).bytes_at(100), 1);
    }

    #[test]
    fn three_points_separate_a_line_from_a_curve() {
        let line = law(&[(1, 13), (2, 23), (4, 43)]);
        assert_eq!((line.kind(), line.is_guess), (LawKind::Line, false));
        let curve = law(&[(10, 110), (20, 420), (40, 1640)]);
        assert_eq!((curve.kind(), curve.is_guess), (LawKind::Near, true));
        // Padded to multiples of 64.
        let padded = law(&[(100, 6400), (200, 12_800), (301, 19_328)]);
        assert_eq!((padded.kind(), padded.is_guess), (LawKind::Near, false));
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
            let law = Law::near_power(&points, points[1]);
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
            if law.is_exact_power() || matches!(law.curve, Curve::Line(_)) {
                assert_eq!(points.map(|(size, _)| law.bytes_at(size)), points.map(|(_, bytes)| bytes));
            }
        }
    }

    #[test]
    fn padding_is_not_taken_for_a_bend() {
        let points = [100, 170, 301, 500].map(|size: u64| (size, (size * 700).next_multiple_of(2048)));
        let [recorded @ .., (size, bytes)] = &points;
        let law = law(recorded);
        assert_eq!(law.kind(), LawKind::Near);
        let error = law.bytes_at(*size).abs_diff(*bytes);
        assert!(error * 100 < *bytes, "{error}");
    }

    proptest! {
        #[test]
        fn recordings_are_reproduced(
            sizes in prop::collection::btree_set(1u64..5000, 2..5),
            bytes in prop::collection::vec(1u64..1 << 36, 4),
        ) {
            let points: Vec<Point> = sizes.into_iter().zip(bytes).collect();
            let law = Law::fit(&points).unwrap();
            if law.kind() == LawKind::Line || law.is_exact_power() {
                for (size, bytes) in &points {
                    prop_assert!(law.bytes_at(*size).abs_diff(*bytes) <= bytes / 50 + 1, "{law:?} at {size:?}");
                }
            }
        }
    }
}

//! How the bytes of one request grow with the size.

use crate::notice::words;

words! {
    /// How bytes grow with the size.
    pub enum LawKind {
        /// The same at every size
        Constant = "constant",
        /// So many bytes for each unit
        Linear = "linear",
        /// With the square of the size
        Quadratic = "quadratic",
        /// With its cube
        Cubic = "cubic",
        /// A part that is the same at every size, and so many bytes for each unit
        Line = "line",
        /// A part with the square of the size and others, as three recordings say
        Parabola = "parabola",
        /// A line that comes near what was recorded
        Near = "near-line",
    }
}

/// A size, and the bytes of one request at it.
pub(super) type Point = (u64, u64);

/// The bytes of one request as a function of the size. At the sizes that it was learned from it gives what was
/// recorded there, but for [`Law::Near`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Law {
    /// `bytes * (n / size) ^ degree`, exactly so at every point.
    Power { degree: u32, point: Point },
    /// Through both.
    Line([Point; 2]),
    /// Through all three.
    Parabola([Point; 3]),
    /// Least squares, as `at zero + slope * n`; some point is off by more than it should be.
    Near { at_zero: f64, slope: f64 },
}

/// A line that misses no point by more than this part of it is taken for what was meant, and what misses for
/// padding: kernels round up rows, tables and workspaces.
const PADDING: f64 = 0.02;

impl Law {
    /// The simplest law through `points`, of sizes that all differ; `None` where there is but one.
    pub(super) fn through(points: &[Point]) -> Option<Self> {
        let [first, .., last] = points else { return None };
        let largest = *points.iter().max_by_key(|(size, _)| *size)?;
        for degree in 0..=if points.len() > 2 { 3 } else { 2 } {
            let law = Self::Power { degree, point: largest };
            if points.iter().all(|point| is_power_through(degree, largest, *point)) {
                return Some(law);
            }
        }
        let line = Self::Line([*first, *last]);
        if misses(line, points) == 0.0 {
            return Some(line);
        }
        let near = Self::nearest(points);
        let parabola = Self::Parabola([*first, points[points.len() / 2], *last]);
        let is_curved = misses(near, points) > PADDING && misses(parabola, points) <= PADDING;
        Some(if is_curved { parabola } else { near })
    }

    /// The line with the least squares.
    fn nearest(points: &[Point]) -> Self {
        let count = points.len() as f64;
        let mean = |of: fn(&Point) -> u64| {
            points.iter().map(|point| of(point) as f64).sum::<f64>() / count
        };
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let (mut together, mut spread) = (0.0, 0.0);
        for (size, bytes) in points {
            let away = *size as f64 - x;
            together += away * (*bytes as f64 - y);
            spread += away * away;
        }
        let slope = if spread > 0.0 { together / spread } else { 0.0 };
        Self::Near { at_zero: y - slope * x, slope }
    }

    /// The bytes at size `n`; at least one, since that is what a request is.
    pub(super) fn at(&self, n: u64) -> u64 {
        match self {
            Self::Power { degree, point: (size, bytes) } => {
                let times = u128::from(n).saturating_pow(*degree);
                let of = u128::from(*size).saturating_pow(*degree).max(1);
                saturated(u128::from(*bytes).saturating_mul(times) / of)
            }
            Self::Line([a, b]) => rounded(between(*a, *b, n)),
            Self::Parabola(points) => rounded(lagrange(points, n)),
            Self::Near { at_zero, slope } => rounded(at_zero + slope * n as f64),
        }
        .max(1)
    }

    /// In a word.
    pub(super) fn kind(&self) -> LawKind {
        match self {
            Self::Power { degree: 0, .. } => LawKind::Constant,
            Self::Power { degree: 1, .. } => LawKind::Linear,
            Self::Power { degree: 2, .. } => LawKind::Quadratic,
            Self::Power { .. } => LawKind::Cubic,
            Self::Line(_) => LawKind::Line,
            Self::Parabola(_) => LawKind::Parabola,
            Self::Near { .. } => LawKind::Near,
        }
    }
}

fn saturated(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
fn rounded(bytes: f64) -> u64 {
    bytes.round() as u64
}

/// Whether bytes grow from one point to the other exactly with the power `degree` of the size.
pub(super) fn is_power_through(degree: u32, a: Point, b: Point) -> bool {
    let power = |point: Point| u128::from(point.0).checked_pow(degree);
    let (Some(of_a), Some(of_b)) = (power(a), power(b)) else { return false };
    let left = u128::from(a.1).checked_mul(of_b);
    left.is_some() && left == u128::from(b.1).checked_mul(of_a)
}

/// The line through both points at `n`; exact at both, and wherever the true line has whole numbers.
fn between(a: Point, b: Point, n: u64) -> f64 {
    let signed = |value: u64| i128::from(value);
    let run = signed(b.0) - signed(a.0);
    let rise = signed(b.1) - signed(a.1);
    if run == 0 {
        return a.1 as f64;
    }
    let Some(away) = (signed(n) - signed(a.0)).checked_mul(rise) else {
        return a.1 as f64 + (signed(n) - signed(a.0)) as f64 * (rise as f64 / run as f64);
    };
    // Whole part and rest apart: a double has 53 bits.
    (signed(a.1) + away.div_euclid(run)) as f64 + away.rem_euclid(run) as f64 / run as f64
}

fn lagrange(points: &[Point; 3], n: u64) -> f64 {
    let n = n as f64;
    let mut sum = 0.0;
    for (at, (size, bytes)) in points.iter().enumerate() {
        let mut part = *bytes as f64;
        for (other, (elsewhere, _)) in points.iter().enumerate() {
            if other != at {
                part *= (n - *elsewhere as f64) / (*size as f64 - *elsewhere as f64);
            }
        }
        sum += part;
    }
    sum
}

/// The most by which `law` misses one of `points`, as a part of it.
fn misses(law: Law, points: &[Point]) -> f64 {
    let miss =
        |(size, bytes): &Point| law.at(*size).abs_diff(*bytes) as f64 / (*bytes).max(1) as f64;
    points.iter().map(miss).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(points: &[Point]) -> Law {
        Law::through(points).unwrap()
    }

    #[test]
    fn powers_are_exact() {
        for (points, kind, n, bytes) in [
            (&[(4, 100), (8, 100)][..], LawKind::Constant, 1000, 100),
            (&[(4, 100), (8, 200)], LawKind::Linear, 29, 725),
            (&[(128, 1 << 20), (256, 1 << 22)], LawKind::Quadratic, 512, 1 << 24),
            (&[(2, 8), (4, 64), (6, 216)], LawKind::Cubic, 10, 1000),
        ] {
            let law = law(points);
            assert_eq!((law.kind(), law.at(n)), (kind, bytes), "{points:?}");
        }
    }

    #[test]
    fn two_points_make_a_line() {
        let law = law(&[(4, 1000), (8, 1400)]);
        assert_eq!(
            (law.kind(), law.at(4), law.at(8), law.at(29)),
            (LawKind::Line, 1000, 1400, 3500)
        );
        assert_eq!(law.at(1), 700);
        assert_eq!(super::Law::through(&[(4, 1000)]), None);
    }

    #[test]
    fn falling_lines_end_at_one_byte() {
        assert_eq!(law(&[(4, 1000), (8, 500)]).at(100), 1);
    }

    #[test]
    fn three_points_tell_a_line_from_a_parabola() {
        assert_eq!(law(&[(1, 13), (2, 23), (4, 43)]).kind(), LawKind::Line);
        let mut curve = vec![(10, 110), (20, 420), (40, 1640)];
        for more in [50, 60] {
            let curved = law(&curve);
            assert_eq!((curved.kind(), curved.at(80)), (LawKind::Parabola, 6480));
            curve.push((more, more * (more + 1)));
        }
        // Padded to multiples of 64.
        let padded = law(&[(100, 6400), (200, 12_800), (301, 19_328)]);
        assert_eq!(padded.kind(), LawKind::Near);
    }

    #[test]
    fn nothing_overflows() {
        let huge = law(&[(4, u64::MAX / 2), (8, u64::MAX)]);
        assert_eq!(huge.at(u64::MAX), u64::MAX);
        assert!(law(&[(1, 1), (2, u64::MAX)]).at(u64::MAX) > 1 << 60);
    }

    proptest::proptest! {
        #[test]
        fn what_was_recorded_is_given_back(
            a in 1u64..5000, more in 1u64..5000, x in 1u64..1 << 40, y in 1u64..1 << 40,
        ) {
            let points = [(a, x), (a + more, y)];
            let law = law(&points);
            assert_eq!(points.map(|(n, _)| law.at(n)), points.map(|(_, bytes)| bytes));
        }
    }
}

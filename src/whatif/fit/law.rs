//! How the bytes of one request grow with the size.

use super::size::Numbers;
use super::sum::{Exponents, Point, Points, Sum};
use crate::base::warning::words;

words! {
    /// How bytes grow with one number of the size.
    pub enum LawKind {
        /// The same whatever it is
        Constant = "constant",
        /// So many bytes for each unit
        Linear = "linear",
        /// With its square
        Quadratic = "quadratic",
        /// With its cube
        Cubic = "cubic",
        /// A part that is the same at every size, and so many bytes for each unit
        Line = "line",
        /// A part with its square and others
        Parabola = "parabola",
        /// A line that comes near what was recorded
        Near = "near-line",
    }
}

/// The bytes of one request as a function of the size. At the sizes that it was learned from it gives what was
/// recorded there, but for a sum that only comes near.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Law {
    /// Of each number `(n / size) ^ degree` times the bytes of the point, exactly so at every point.
    Power { degrees: Exponents, point: Point },
    /// So many times each of some products.
    Sum(Sum),
}

impl Law {
    /// The simplest law through `points`, of sizes that all differ; `None` where there is but one.
    pub(super) fn through(points: &[Point]) -> Option<Self> {
        let largest =
            *points.iter().max_by_key(|(size, _)| size.map(u128::from).iter().product::<u128>())?;
        if points.len() < 2 {
            return None;
        }
        let points = Points::of(points, largest);
        let top = points.values.map(|values| [0, 0, 2, 3][values.min(3)]);
        let mut powers: Vec<Exponents> =
            (0..=top[0]).flat_map(|i| (0..=top[1]).map(move |j| [i, j])).collect();
        powers.sort_by_key(|[i, j]| (i + j, *j));
        let exact = |degrees: &&Exponents| {
            points.all.iter().all(|point| is_power_through(**degrees, largest, *point))
        };
        if let Some(degrees) = powers.iter().find(exact) {
            return Some(Self::Power { degrees: *degrees, point: largest });
        }
        points.short_sum().or_else(|| points.whole_sum()).map(Self::Sum)
    }

    /// The bytes at size `n`; at least one, since that is what a request is.
    pub(super) fn at(&self, n: Numbers) -> u64 {
        match self {
            Self::Power { degrees, point: (size, bytes) } => {
                let power = |of: Numbers| {
                    let [a, b] = [0, 1].map(|at| u128::from(of[at]).saturating_pow(degrees[at]));
                    a.saturating_mul(b)
                };
                saturated(u128::from(*bytes).saturating_mul(power(n)) / power(*size).max(1))
            }
            Self::Sum(sum) => sum.bytes(n),
        }
        .max(1)
    }

    /// How it grows with one of the two numbers, in a word.
    pub(super) fn kind(&self, variable: usize) -> LawKind {
        match self {
            Self::Power { degrees, .. } => match degrees[variable] {
                0 => LawKind::Constant,
                1 => LawKind::Linear,
                2 => LawKind::Quadratic,
                _ => LawKind::Cubic,
            },
            Self::Sum(sum) if sum.is_near => LawKind::Near,
            Self::Sum(sum) => match sum.exponents(variable) {
                0b001 => LawKind::Constant,
                0b010 => LawKind::Linear,
                0b100 => LawKind::Quadratic,
                0b011 => LawKind::Line,
                _ => LawKind::Parabola,
            },
        }
    }

    /// Whether it is more with more of any number.
    pub(super) fn grows(&self) -> bool {
        (0..2).any(|variable| self.kind(variable) != LawKind::Constant)
    }

    /// Whether no more sizes say so than it takes: another sum may go through them.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Sum(sum) if sum.is_open)
    }

    /// Whether it bends by no more than as many sizes say as it takes: another curve may go through them.
    pub(super) fn is_guess(&self) -> bool {
        matches!(self, Self::Sum(sum) if sum.is_guess)
    }
}

fn saturated(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether bytes grow from one point to the other exactly with these powers of the numbers.
fn is_power_through(degrees: Exponents, a: Point, b: Point) -> bool {
    let of = |point: Point, by: Point| {
        let powers = [0, 1].map(|at| u128::from(by.0[at]).checked_pow(degrees[at]));
        u128::from(point.1).checked_mul(powers[0]?)?.checked_mul(powers[1]?)
    };
    let left = of(a, b);
    left.is_some() && left == of(b, a)
}

/// Whether bytes grow from one point to the other exactly with some power, up to `most`, of each number that differs.
pub(super) fn grows_by_powers(most: u32, a: Point, b: Point) -> bool {
    let top = [0, 1].map(|at| if a.0[at] == b.0[at] { 0 } else { most });
    (0..=top[0]).any(|i| (0..=top[1]).any(|j| is_power_through([i, j], a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(points: &[(u64, u64)]) -> Option<Law> {
        Law::through(&points.iter().map(|(n, bytes)| ([*n, 1], *bytes)).collect::<Vec<_>>())
    }

    fn law(points: &[(u64, u64)]) -> Law {
        through(points).unwrap()
    }

    /// Of one number.
    trait Single {
        fn one(&self, n: u64) -> u64;
    }

    impl Single for Law {
        fn one(&self, n: u64) -> u64 {
            self.at([n, 1])
        }
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
            assert_eq!((law.kind(0), law.one(n)), (kind, bytes), "{points:?}");
        }
    }

    #[test]
    fn two_points_make_a_line() {
        let law = law(&[(4, 1000), (8, 1400)]);
        assert_eq!(
            (law.kind(0), law.one(4), law.one(8), law.one(29)),
            (LawKind::Line, 1000, 1400, 3500)
        );
        assert_eq!(law.one(1), 700);
        assert_eq!(through(&[(4, 1000)]), None);
    }

    #[test]
    fn what_rises_as_the_square_and_begins_below_nothing_bends() {
        for (of, kind) in [
            ((|n| (100 * n + 7) * (100 * n + 7) * 4) as fn(u64) -> u64, LawKind::Parabola),
            (|n| (16 * n - 2) * (16 * n - 2), LawKind::Parabola),
            (|n| (n - 1) * 1000, LawKind::Line),
        ] {
            let law = law(&[(4, of(4)), (8, of(8))]);
            assert!(law.is_guess() && law.kind(0) == kind, "{law:?}");
            assert!(law.one(29).abs_diff(of(29)) * 1000 < of(29), "{law:?}: {}", law.one(29));
        }
        assert!(!law(&[(4, 3996), (8, 7996)]).is_guess());
    }

    #[test]
    fn falling_lines_end_at_one_byte() {
        assert_eq!(law(&[(4, 1000), (8, 500)]).one(100), 1);
    }

    #[test]
    fn three_points_tell_a_line_from_a_parabola() {
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
        fn what_was_recorded_is_given_back(
            a in 1u64..5000, more in 1u64..5000, x in 1u64..1 << 40, y in 1u64..1 << 40,
        ) {
            let points = [(a, x), (a + more, y)];
            let law = law(&points);
            assert_eq!(points.map(|(n, _)| law.one(n)), points.map(|(_, bytes)| bytes));
        }
    }
}

//! The size of a request, by the sizes of the same and of other requests in earlier iterations.

use crate::allocator::conf::Settings;
use crate::allocator::round_size;

/// Requests are rounded to this, so a law is exact only up to it.
const ROUNDING: f64 = 512.0;
/// A size below this many times its error says too little about a ratio.
const MIN_PER_ERROR: f64 = 64.0;
/// Maximum number of terms of a continued fraction.
const MAX_FRACTION_TERMS: usize = 12;
/// A law's error on past values beyond which the series is irregular.
pub(super) const MAX_ERROR: f64 = 0.05;
/// A line must be this much better than a constant.
const COMPLEXITY_GAIN: f64 = 0.5;
/// The number of past values that a law is tested on.
const MAX_TESTS: usize = 4;
/// An error below which a straight line counts as exact.
const EXACT: f64 = 1e-3;

#[expect(clippy::cast_precision_loss, reason = "sizes below 2^53 are exact")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

/// `bytes` as the allocator rounds them, at least one block.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is intended")]
fn rounded(bytes: f64) -> u64 {
    round_size((bytes.max(1.0) + 1e-6).floor() as u64, &Settings::default())
}

pub(super) fn is_constant(values: &[u64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// The value at `x` of a line through the origin that fits `values` over `xs`, if only the values or both are rounded
/// up to blocks.
fn proportional(values: &[u64], xs: &[u64], x: u64) -> Option<u64> {
    let points: Vec<(f64, f64)> = values.iter().zip(xs).map(|(value, x)| (float(*x), float(*value))).collect();
    let factor = slope(&points, 0.0).or_else(|| slope(&points, ROUNDING))?;
    Some(rounded(factor * float(x)))
}

/// The slope of a line through the origin on which all `points` lie, if their `x` are up to `x_error` too large.
fn slope(points: &[(f64, f64)], x_error: f64) -> Option<f64> {
    if points.iter().any(|(x, _)| *x < x_error * MIN_PER_ERROR) {
        return None;
    }
    let (mut above, mut up_to) = (0.0f64, f64::INFINITY);
    for (x, value) in points.iter().filter(|(x, _)| *x > 0.0) {
        (above, up_to) = (above.max((value - ROUNDING) / x), up_to.min(value / (x - x_error)));
    }
    (above < up_to && up_to.is_finite()).then(|| simplest_between(above, up_to))
}

/// The fraction with the smallest denominator in `above..=up_to`: shapes have ratios such as 4 or 1/128.
fn simplest_between(mut above: f64, mut up_to: f64) -> f64 {
    // The continued fraction of both bounds, as far as they agree.
    let mut terms = Vec::new();
    for _ in 0..MAX_FRACTION_TERMS {
        let integer = up_to.floor();
        terms.push(integer);
        if integer > above || up_to <= integer {
            break;
        }
        (above, up_to) = (1.0 / (up_to - integer), 1.0 / (above - integer)); // infinite if `above` is whole
        if up_to.is_infinite() {
            terms.push(above.ceil());
            break;
        }
    }
    let mut terms = terms.into_iter().rev();
    let last = terms.next().unwrap_or(0.0);
    terms.fold(last, |value, term| term + 1.0 / value)
}

/// The size of a request with sizes `values` so far, when another with sizes `xs` has `x`: a constant or proportional law.
pub(super) fn scale(values: &[u64], xs: &[u64], x: u64) -> Option<u64> {
    if is_constant(values) { values.first().copied() } else { proportional(values, xs, x) }
}

/// How a series goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trend {
    Constant,
    Line,
}

impl Trend {
    pub(super) fn next(self, series: &[u64]) -> Option<u64> {
        match (self, series) {
            (Self::Constant, [.., last]) => Some(*last),
            (Self::Line, [.., before, last]) => Some(last.saturating_mul(2).saturating_sub(*before)),
            _ => None,
        }
    }

    /// The trend that would have predicted the last values of `series` best, with its largest error as a ratio.
    pub(super) fn of_series(series: &[u64]) -> (Self, f64) {
        let [constant, line] = [Self::Constant, Self::Line].map(|trend| trend.error(series));
        if line < constant * COMPLEXITY_GAIN - 2e-4 { (Self::Line, line) } else { (Self::Constant, constant) }
    }

    /// The largest error on the last values of `series`; 1 or more if there are too few to test it on.
    fn error(self, series: &[u64]) -> f64 {
        let tested = (1..series.len()).rev().take(MAX_TESTS);
        let predictions = tested.map_while(|end| Some((self.next(&series[..end])?, series[end])));
        let errors = predictions.map(|(predicted, value)| float(predicted.abs_diff(value)) / float(value).max(1.0));
        let (tests, error) = errors.fold((0, 0.0f64), |(tests, most), error| (tests + 1, most.max(error)));
        match tests {
            0 => f64::INFINITY,
            // Any two values lie on a line.
            1 if self == Self::Line && error >= EXACT => 1.0,
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_input() {
        let xs = [1024, 2048, 4096];
        assert_eq!(scale(&[7168, 7168, 7168], &xs, 9999), Some(7168));
        assert_eq!(scale(&[2048, 4096, 8192], &xs, 8192), Some(16384));
        assert_eq!(scale(&[1 << 20, 4 << 20, 16 << 20], &xs, 8192), None);
    }

    #[test]
    fn ratios_are_simple_although_sizes_are_rounded() {
        // 256 bytes a token, rounded up to 512, beside 32 KiB a token.
        let tokens = [338, 339, 340, 341, 342];
        let (weights, keys) =
            (tokens.map(|count: u64| (count * 256).next_multiple_of(512)), tokens.map(|count| count * 32768));
        assert_eq!(scale(&weights[..4], &keys[..4], keys[4]), Some(weights[4]));
        for (above, up_to, simplest) in [
            (0.3, 0.4, 1.0 / 3.0),
            (2.9, 3.2, 3.0),
            (0.0078, 0.00785, 1.0 / 128.0),
            (0.6, 0.7, 2.0 / 3.0),
            (0.9, 1.0, 1.0),
            (0.0, 0.5, 0.5),
        ] {
            let found = simplest_between(above, up_to);
            assert!((found - simplest).abs() < 1e-12, "{above} {up_to}: {found}");
        }
    }

    #[test]
    fn one_value_tests_a_line_only_if_it_is_exact() {
        for (trend, series, error) in [
            (Trend::Line, &[997, 999, 1000][..], 1.0), // off by 1/1000
            (Trend::Line, &[998, 1000, 1001], 1.0 / 1001.0),
            (Trend::Line, &[0, 999, 999, 1000], 1.0),
            (Trend::Constant, &[999, 1000], 0.001),
            (Trend::Line, &[1, 2], f64::INFINITY),
        ] {
            assert_eq!(trend.error(series).total_cmp(&error), std::cmp::Ordering::Equal, "{series:?}");
        }
    }

    #[test]
    fn a_trend_is_tested_on_the_past() {
        for (series, next) in [([5, 5, 5, 5], 5), ([10, 20, 30, 40], 50)] {
            let (trend, error) = Trend::of_series(&series);
            assert_eq!((trend.next(&series), error < MAX_ERROR), (Some(next), true));
        }
        assert!(Trend::of_series(&[10, 71, 33, 90, 4, 55]).1 >= MAX_ERROR);
    }
}

//! The size of a request, by the sizes of the same and of other requests in earlier iterations.

use crate::allocator::conf::Settings;
use crate::allocator::round_size;

/// Requests are rounded to this, so a law is exact only up to it.
const ROUNDING: f64 = 512.0;
/// Smaller sizes say too little of a ratio, if they are off by the error.
const MIN_PER_ERROR: f64 = 64.0;
/// Terms of a continued fraction, at most.
const MAX_FRACTION_TERMS: usize = 12;
/// A law's error on past values beyond which the series is irregular.
pub(super) const MAX_ERROR: f64 = 0.05;
/// A law with more terms must be this much better.
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

/// The value at `x` of the line through `values` over `xs`: through the origin or not, with the values rounded up to
/// blocks or with both.
fn linear(values: &[u64], xs: &[u64], x: u64) -> Option<u64> {
    let points: Vec<(f64, f64)> = values.iter().zip(xs).map(|(value, x)| (float(*x), float(*value))).collect();
    let (factor, base) = proportional(&points, 0.0)
        .or_else(|| affine(&points, 0.0))
        .or_else(|| proportional(&points, ROUNDING))
        .or_else(|| affine(&points, ROUNDING))?;
    Some(rounded(factor * float(x) + base))
}

/// A line through the origin on which all `points` lie, if their `x` are up to `x_error` too large.
fn proportional(points: &[(f64, f64)], x_error: f64) -> Option<(f64, f64)> {
    if points.iter().any(|(x, _)| *x < x_error * MIN_PER_ERROR) {
        return None;
    }
    let (mut above, mut up_to) = (0.0f64, f64::INFINITY);
    for (x, value) in points.iter().filter(|(x, _)| *x > 0.0) {
        (above, up_to) = (above.max((value - ROUNDING) / x), up_to.min(value / (x - x_error)));
    }
    (above < up_to && up_to.is_finite()).then(|| (simplest_between(above, up_to), 0.0))
}

/// A rising line on which all `points` lie, with such an error.
fn affine(points: &[(f64, f64)], x_error: f64) -> Option<(f64, f64)> {
    // Any two points lie on a line.
    if points.len() < 3 {
        return None;
    }
    let highest = points.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let lowest = points.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let (run, rise) = (highest.0 - lowest.0, highest.1 - lowest.1);
    if run <= x_error || rise < 0.0 || lowest.0 < x_error * MIN_PER_ERROR {
        return None;
    }
    let slope = simplest_between(((rise - ROUNDING) / (run + x_error)).max(0.0), (rise + ROUNDING) / (run - x_error));
    let bases = || points.iter().map(|(x, value)| value - slope * x);
    let (lowest_base, highest_base) = (bases().min_by(f64::total_cmp)?, bases().max_by(f64::total_cmp)?);
    (highest_base - lowest_base <= ROUNDING + slope * x_error).then_some((slope, lowest_base))
}

/// The fraction with the smallest denominator in `above..=up_to`: shapes have ratios such as 4 or 1/128.
fn simplest_between(above: f64, up_to: f64) -> f64 {
    let (mut above, mut up_to) = (above, up_to);
    // The continued fraction of both bounds, as far as they agree.
    let mut terms = Vec::new();
    for _ in 0..MAX_FRACTION_TERMS {
        let integer = up_to.floor();
        terms.push(integer);
        if integer > above || up_to <= integer {
            break;
        }
        (above, up_to) =
            (1.0 / (up_to - integer), if above > integer { 1.0 / (above - integer) } else { f64::INFINITY });
        if up_to.is_infinite() {
            terms.push(above.ceil());
            break;
        }
    }
    let mut terms = terms.into_iter().rev();
    let last = terms.next().unwrap_or(0.0);
    terms.fold(last, |value, term| term + 1.0 / value)
}

/// The size of a request with sizes `values` so far, when another with sizes `xs` has `x`: a constant, proportional or
/// affine law.
pub(super) fn scale(values: &[u64], xs: &[u64], x: u64) -> Option<u64> {
    if is_constant(values) { values.first().copied() } else { linear(values, xs, x) }
}

/// The same; without such a law by a parabola through the last three points, or in proportion to the last. The newest
/// come last.
pub(super) fn scale_or_bend(values: &[u64], xs: &[u64], x: u64) -> u64 {
    if let Some(bytes) = scale(values, xs, x) {
        return bytes;
    }
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (value, x) in values.iter().zip(xs).rev() {
        if points.iter().all(|point| (point.0 - float(*x)).abs() >= 1.0) {
            points.push((float(*x), float(*value)));
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let x = float(x);
    if let [.., (x0, y0), (x1, y1), (x2, y2)] = points[..] {
        let bent = y0 * (x - x1) * (x - x2) / ((x0 - x1) * (x0 - x2))
            + y1 * (x - x0) * (x - x2) / ((x1 - x0) * (x1 - x2))
            + y2 * (x - x0) * (x - x1) / ((x2 - x0) * (x2 - x1));
        if bent > 0.0 {
            return rounded(bent);
        }
    }
    let (value, last_x) = (values.last().copied().unwrap_or(0), xs.last().copied().unwrap_or(0));
    if last_x == 0 { value } else { rounded(float(value) * x / float(last_x)) }
}

/// The next value of a series from its values `lag` apart: constant, a line or a parabola.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trend {
    lag: usize,
    degree: usize,
}

const TRENDS: [Trend; 6] = [
    Trend { lag: 1, degree: 0 },
    Trend { lag: 1, degree: 1 },
    Trend { lag: 2, degree: 1 },
    Trend { lag: 1, degree: 2 },
    Trend { lag: 2, degree: 2 },
    Trend { lag: 3, degree: 1 },
];

impl Trend {
    pub(super) fn next(self, series: &[u64]) -> Option<u64> {
        let mut back = series.iter().rev().skip(self.lag - 1).step_by(self.lag).map(|value| float(*value));
        let mut at = || back.next();
        let next = match self.degree {
            0 => at()?,
            1 => 2.0 * at()? - at()?,
            _ => 3.0 * at()? - 3.0 * at()? + at()?,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is intended")]
        let next = next.max(0.0).round() as u64;
        Some(next)
    }

    /// The trend that would have predicted the last values of `series` best, with its largest error as a ratio; 1 if
    /// there are too few values to test it on.
    pub(super) fn of_series(series: &[u64]) -> (Self, f64) {
        let mut best: Option<(Self, f64)> = None;
        for trend in TRENDS {
            let (mut tests, mut error) = (0, 0.0f64);
            for end in (1..series.len()).rev().take(MAX_TESTS) {
                let Some(predicted) = trend.next(&series[..end]) else { break };
                error = error.max((float(predicted) - float(series[end])).abs() / float(series[end]).max(1.0));
                tests += 1;
            }
            if tests == 0 {
                continue;
            }
            let is_tested = tests >= 2 || trend.degree == 0 || (trend.degree == 1 && error < EXACT);
            let error = if is_tested { error } else { 1.0 };
            if best.is_none_or(|(_, known)| error < known * COMPLEXITY_GAIN - 2e-4) {
                best = Some((trend, error));
            }
        }
        best.unwrap_or((TRENDS[0], 1.0))
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
        let affine = |x: u64| 2 * x + (64 << 10);
        let larger = xs.map(|x| x << 8);
        assert_eq!(scale(&larger.map(affine), &larger, 8 << 20), Some(affine(8 << 20)), "an affine law");
        assert_eq!(scale(&[1 << 20, 4 << 20, 16 << 20], &xs, 8192), None);
        assert_eq!(scale_or_bend(&[1 << 20, 4 << 20, 16 << 20], &xs, 8192), 64 << 20, "a quadratic law");
    }

    #[test]
    fn ratios_are_simple_although_sizes_are_rounded() {
        // 256 bytes a token, rounded up to 512, beside 32 KiB a token.
        let (tokens, keys) = ([338u64, 339, 340, 341], |tokens: u64| tokens * 32768);
        let weights = |tokens: u64| (tokens * 256).div_ceil(512) * 512;
        assert_eq!(scale(&tokens.map(weights), &tokens.map(keys), keys(342)), Some(weights(342)));
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
    fn a_trend_is_tested_on_the_past() {
        let of = |series: &[u64]| {
            let (trend, error) = Trend::of_series(series);
            (trend.next(series).unwrap(), error < MAX_ERROR)
        };
        assert_eq!(of(&[5, 5, 5, 5]), (5, true));
        assert_eq!(of(&[10, 20, 30, 40]), (50, true));
        assert_eq!(of(&[100, 200, 400, 700, 1100, 1600]), (2200, true));
        assert_eq!(of(&[10, 90, 10, 90, 10, 90]).0, 10, "two sizes in turn");
        assert!(!of(&[10, 71, 33, 90, 4, 55]).1);
    }
}

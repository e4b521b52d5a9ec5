//! The shape of a series over time: flat, a step, or a creep.
//!
//! Each shape is fitted by medians, so that single runs with other sizes do not count, and the one that explains the
//! series with the fewest parameters is chosen (the Bayesian information criterion of the absolute deviations).

/// A point of a series: weeks after the first, and bytes.
pub(super) type Point = (f64, f64);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Flat,
    /// Before point `at` the level is `before`, from it on `after`.
    Step {
        at: usize,
        before: f64,
        after: f64,
    },
    /// From point `at` on the level grows by `per_week`; before it is `before`, and at the last point `after`.
    Creep {
        at: usize,
        before: f64,
        after: f64,
        per_week: f64,
    },
}

/// Points on each side of a change.
const MIN_SIDE: usize = 3;
/// The weight of a parameter, in units of the criterion: changes are looked for at every point of many series.
const PARAMETER_WEIGHT: f64 = 4.0;
/// Deviations below this share of the level are no information.
const NEGLIGIBLE_RATIO: f64 = 1e-4;

/// The shape of `points`, which are in order of time.
pub(super) fn shape(points: &[Point]) -> Shape {
    let level = median(points.iter().map(|(_, bytes)| *bytes).collect());
    let criterion = |deviation: f64, parameters: f64| {
        let number = points.len() as f64;
        let mean = (deviation / number).max(level.abs() * NEGLIGIBLE_RATIO).max(1.0);
        2.0 * number * mean.ln() + PARAMETER_WEIGHT * parameters * number.ln()
    };
    let flat = (criterion(deviation(points, |_| level), 1.0), Shape::Flat);
    let changes = (MIN_SIDE..points.len().saturating_sub(MIN_SIDE - 1)).flat_map(|at| {
        let (before, after) = points.split_at(at);
        let step = fit_step(at, before, after);
        let creep = fit_hinge(at, before, after);
        [step, creep].map(|(deviation, shape)| (criterion(deviation, 3.0), shape))
    });
    let (deviation, creep) = fit_line(points);
    let candidates = [(criterion(deviation, 2.0), creep)].into_iter().chain(changes);
    candidates.fold(flat, |best, candidate| if candidate.0 < best.0 { candidate } else { best }).1
}

fn fit_step(at: usize, before: &[Point], after: &[Point]) -> (f64, Shape) {
    let [low, high] = [before, after].map(|side| median(side.iter().map(|(_, bytes)| *bytes).collect()));
    let sum = deviation(before, |_| low) + deviation(after, |_| high);
    (sum, Shape::Step { at, before: low, after: high })
}

/// Flat, then a line that begins at that level.
fn fit_hinge(at: usize, before: &[Point], after: &[Point]) -> (f64, Shape) {
    let level = median(before.iter().map(|(_, bytes)| *bytes).collect());
    let start = before.last().map_or(0.0, |(weeks, _)| *weeks);
    let slopes = after.iter().filter(|(weeks, _)| *weeks > start);
    let slopes = slopes.map(|(weeks, bytes)| ((bytes - level) / (weeks - start), weeks - start)).collect();
    // The weighted median has the smallest sum of absolute deviations.
    let per_week = weighted_median(slopes);
    let end = after.last().map_or(start, |(weeks, _)| *weeks);
    let sum = deviation(before, |_| level) + deviation(after, |weeks| level + per_week * (weeks - start));
    (sum, Shape::Creep { at, before: level, after: level + per_week * (end - start), per_week })
}

/// A line through all points: the median of the slopes of all pairs (Theil and Sen).
fn fit_line(points: &[Point]) -> (f64, Shape) {
    let later = |index: usize| points.iter().skip(index + 1);
    let slope = |a: &Point, b: &Point| (b.0 > a.0).then(|| (b.1 - a.1) / (b.0 - a.0));
    let slopes = points.iter().enumerate().flat_map(|(i, a)| later(i).filter_map(move |b| slope(a, b)));
    let per_week = median(slopes.collect());
    let intercept = median(points.iter().map(|(weeks, bytes)| bytes - per_week * weeks).collect());
    let value = |weeks: f64| intercept + per_week * weeks;
    let [first, last] = [points.first(), points.last()].map(|point| point.map_or(0.0, |(weeks, _)| value(*weeks)));
    (deviation(points, value), Shape::Creep { at: 0, before: first, after: last, per_week })
}

fn deviation(points: &[Point], value: impl Fn(f64) -> f64) -> f64 {
    points.iter().map(|(weeks, bytes)| (bytes - value(*weeks)).abs()).sum()
}

/// The median; 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(0.0);
    let lower = middle.checked_sub(1).and_then(|index| values.get(index)).copied();
    match lower {
        Some(lower) if values.len().is_multiple_of(2) => f64::midpoint(lower, upper),
        _ => upper,
    }
}

/// The median of values with weights; 0 of nothing.
fn weighted_median(mut values: Vec<(f64, f64)>) -> f64 {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let middle = values.iter().find(|(_, weight)| {
        sum += weight;
        sum >= half
    });
    middle.map_or(0.0, |(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic noise between -1 and 1.
    fn noise(index: u64) -> f64 {
        let mut x = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn series(runs: u64, seed: u64, noise_bytes: f64, bytes: impl Fn(f64) -> f64) -> Vec<Point> {
        let point = |run: u64| {
            let weeks = run as f64 / 7.0;
            (weeks, bytes(weeks) + noise_bytes * noise(seed * 10_000 + run))
        };
        (0..runs).map(point).collect()
    }

    #[test]
    fn noise_alone_is_flat() {
        for seed in 0..300 {
            assert_eq!(shape(&series(60, seed, 300.0, |_| 10_000.0)), Shape::Flat, "seed {seed}");
        }
    }

    #[test]
    fn a_creep_of_one_percent_a_week_is_found_in_noise_of_three_times_that() {
        for seed in 0..100 {
            let found = shape(&series(60, seed, 300.0, |weeks| 10_000.0 + 100.0 * weeks));
            let Shape::Creep { per_week, .. } = found else { panic!("seed {seed}: {found:?}") };
            assert!((50.0..250.0).contains(&per_week), "seed {seed}: {per_week}");
        }
    }

    #[test]
    fn a_step_is_no_creep() {
        for seed in 0..100 {
            let found = shape(&series(60, seed, 100.0, |weeks| if weeks < 4.0 { 10_000.0 } else { 11_000.0 }));
            let Shape::Step { at, .. } = found else { panic!("seed {seed}: {found:?}") };
            assert_eq!(at, 28, "seed {seed}");
        }
    }

    #[test]
    fn a_creep_that_begins_late_has_its_start() {
        for seed in 0..100 {
            let found = shape(&series(80, seed, 50.0, |weeks| 10_000.0 + 200.0 * (weeks - 5.0).max(0.0)));
            let Shape::Creep { at, before, per_week, .. } = found else { panic!("seed {seed}: {found:?}") };
            assert!(at.abs_diff(35) <= 7, "seed {seed}: from run {at}");
            assert!((before - 10_000.0).abs() < 60.0 && (per_week - 200.0).abs() < 60.0, "{before} {per_week}");
        }
    }

    #[test]
    fn single_runs_of_another_size_do_not_count() {
        let mut points = series(60, 1, 20.0, |_| 10_000.0);
        for index in [7, 20, 41, 59] {
            points[index].1 *= 3.0;
        }
        assert_eq!(shape(&points), Shape::Flat);
        assert_eq!(shape(&[]), Shape::Flat);
        assert_eq!(shape(&[(0.0, 5.0)]), Shape::Flat);
        assert_eq!(shape(&[(0.0, 5.0); 20]), Shape::Flat);
    }
}

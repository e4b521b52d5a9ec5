//! How much the bytes that the data decides differ from step to step, and how they grow with the size.
//!
//! In logarithms, the bytes of a step are a line of the size and a draw. The line rises by a power of 1 to 2. It may rise
//! by more if a step is padded to the longest of as many draws as the size: the expected maximum of `n` draws grows with
//! the logarithm of `n`, in proportion to how much such maxima differ (Gumbel's distribution). A run takes what its
//! largest step takes, and the largest of other steps is estimated by order statistics.

use super::data_factor::DataFactor;

/// Student's t for 19 of 20 draws, with one degree of freedom and more.
const STUDENT: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
/// The same for the normal distribution.
const NORMAL: f64 = 1.96;
/// A run that takes as little or as much is one of 40.
const TAIL: f64 = 1.0 / 40.0;
/// Gumbel's distribution, in units of its scale: the standard deviation, the median, and the root mean square of the
/// distance of higher draws to the median.
const GUMBEL_DEVIATION: f64 = 1.2825;
const GUMBEL_MEDIAN: f64 = 0.3665;
const GUMBEL_DEVIATION_ABOVE: f64 = 1.5976;
/// The largest of more steps is above the median. At larger sizes it may be near it: sums of many draws hardly differ.
const MAX_STEPS_BELOW: usize = 5;

/// The completed steps of recordings.
pub(super) struct Draws {
    runs: Vec<Run>,
}

/// The bytes that the data decides in each step of a recording.
pub(super) struct Run {
    pub(super) size: u64,
    pub(super) bytes: Vec<u64>,
}

impl Run {
    /// The logarithm of the size.
    fn x(&self) -> f64 {
        (self.size as f64).ln()
    }

    /// The logarithm of the bytes of each step.
    fn logarithms(&self) -> impl Iterator<Item = f64> {
        self.bytes.iter().map(|bytes| (*bytes as f64).ln())
    }
}

/// The logarithm of the bytes as a line of the logarithm of the size.
struct Line {
    slope: f64,
    /// Half of the range that holds the slope in 19 of 20 cases.
    slope_error: f64,
    /// The standard deviation of a step.
    deviation: f64,
    mean_x: f64,
}

impl Line {
    /// By how much the power may be higher if steps are padded to the longest of as many draws as the size.
    fn growth_of_maxima(&self) -> f64 {
        self.deviation / GUMBEL_DEVIATION
    }

    /// The nearest power.
    fn exponent(&self) -> u32 {
        if self.slope <= 1.5 + self.growth_of_maxima() / 2.0 { 1 } else { 2 }
    }
}

impl Draws {
    /// `None` if no run has a step with such bytes.
    pub(super) fn new(mut runs: Vec<Run>) -> Option<Self> {
        runs.retain(|run| !run.bytes.is_empty());
        (!runs.is_empty()).then_some(Self { runs })
    }

    /// Steps of the longest recording.
    pub(super) fn steps(&self) -> usize {
        self.runs.iter().map(|run| run.bytes.len()).max().unwrap_or(0)
    }

    /// Steps of all recordings.
    fn all_steps(&self) -> usize {
        self.runs.iter().map(|run| run.bytes.len()).sum()
    }

    /// The power with which the bytes grow.
    pub(super) fn exponent(&self) -> u32 {
        self.line().map_or(0, |line| line.exponent())
    }

    /// How much less and more another run may take than the largest steps of the recordings predict; `None` if too few
    /// steps are recorded.
    pub(super) fn factors(&self) -> Option<[DataFactor; 2]> {
        let line = self.line()?;
        let exponent = f64::from(line.exponent());
        let draws_of =
            |run: &Run| -> Vec<f64> { run.logarithms().map(|logarithm| logarithm - exponent * run.x()).collect() };
        let by_run: Vec<Vec<f64>> = self.runs.iter().map(draws_of).collect();
        let maxima = by_run.iter().map(|draws| draws.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        let predicted = maxima.sum::<f64>() / by_run.len() as f64;
        let mut draws: Vec<f64> = by_run.into_iter().flatten().collect();
        draws.sort_by(f64::total_cmp);
        let median = f64::midpoint(draws[(draws.len() - 1) / 2], draws[draws.len() / 2]);
        let lowest = draws[order_of_lower_bound(draws.len(), self.steps().min(MAX_STEPS_BELOW))?];
        let less = (median - lowest).max(0.0);
        let more = upper_deviation(&draws, median) * scales_to_maximum(self.steps());
        let [lowest_slope, highest_slope] = [line.slope - line.slope_error, line.slope + line.slope_error];
        let flatter = exponent - lowest_slope.clamp(1.0, exponent);
        let steeper = highest_slope.clamp(exponent, exponent.max(2.0 + line.growth_of_maxima())) - exponent;
        let factor = |sign: f64, deviation: f64, power: f64| DataFactor {
            logarithm: median - predicted,
            sign,
            deviation,
            power,
            mean_size: line.mean_x.exp(),
        };
        Some([factor(-1.0, less, flatter), factor(1.0, more, steeper)])
    }

    /// The line nearest to all steps; `None` for fewer than three of them, or a single size.
    fn line(&self) -> Option<Line> {
        let points = || self.runs.iter().flat_map(|run| run.logarithms().map(|y| (run.x(), y)));
        let count = self.all_steps() as f64;
        let mean_x = points().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points().map(|(_, y)| y).sum::<f64>() / count;
        let squares = points().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
        if squares <= 0.0 {
            return None;
        }
        let slope = points().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / squares;
        let rest = points().map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2)).sum::<f64>();
        let freedom = self.all_steps().saturating_sub(2).max(1);
        let deviation = (rest / freedom as f64).sqrt();
        let slope_error = student(freedom) * deviation / squares.sqrt();
        Some(Line { slope, slope_error, deviation, mean_x })
    }
}

fn student(freedom: usize) -> f64 {
    STUDENT[freedom.clamp(1, STUDENT.len()) - 1]
}

/// The index of the highest of `count` draws in order that the largest of `steps` more rarely stays below, whatever
/// their distribution; `None` if it may stay below all of them.
fn order_of_lower_bound(count: usize, steps: usize) -> Option<usize> {
    let mut probability = count as f64 / (count + steps) as f64;
    let mut order = count;
    while probability > TAIL {
        order = order.checked_sub(1).filter(|order| *order > 0)?;
        probability *= order as f64 / (order + steps) as f64;
    }
    order.checked_sub(1)
}

/// The root mean square of the distance of the upper half of `draws` to their median, with the error of so few.
fn upper_deviation(draws: &[f64], median: f64) -> f64 {
    let upper: Vec<f64> = draws.iter().filter(|draw| **draw >= median).map(|draw| draw - median).collect();
    let mean_square = upper.iter().map(|distance| distance * distance).sum::<f64>() / upper.len().max(1) as f64;
    mean_square.sqrt() * student((draws.len() - 1) / 2) / NORMAL
}

/// How many such deviations above the median the largest of `steps` rarely exceeds, if they are maxima.
fn scales_to_maximum(steps: usize) -> f64 {
    let highest = -(-(1.0 - TAIL).ln()).ln();
    ((steps as f64).ln() + highest - GUMBEL_MEDIAN) / GUMBEL_DEVIATION_ABOVE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of which each step takes one of `bytes`, times a power of the size.
    fn draws(power: i32, bytes: &[u64]) -> Draws {
        let run = |size: u64| Run {
            size,
            bytes: bytes.iter().map(|bytes| bytes * size.pow(power.cast_unsigned())).collect(),
        };
        Draws::new([8, 12, 16].map(run).into()).unwrap()
    }

    #[test]
    fn the_nearest_power_is_predicted() {
        for power in [1, 2] {
            assert_eq!(draws(power, &[1000, 1300, 800, 1100]).exponent(), power.cast_unsigned());
        }
        // Padded to the longest of `n` draws, whose expected value grows with `n`.
        let longest =
            |size: u64| Run { size, bytes: [2, 3, 4, 5, 9].map(|draw| size * (draw * 1000 + 100 * size)).into() };
        assert_eq!(Draws::new([8, 12, 16].map(longest).into()).unwrap().exponent(), 1);
        assert!(Draws::new(Vec::new()).is_none());
    }

    #[test]
    fn equal_steps_leave_nothing_open_and_few_steps_all() {
        for factor in draws(1, &[1000; 5]).factors().unwrap() {
            assert_eq!(factor.apply(1_000_000, 1.0, 100), 1_000_000);
        }
        let range = |draws: &Draws| draws.factors().unwrap().map(|factor| factor.apply(1000, 1.0, 12));
        let [near, far] = [[1000, 1010, 990, 1005, 995], [1000, 2000, 500, 1500, 700]].map(|bytes| draws(1, &bytes));
        let ([near_less, near_more], [far_less, far_more]) = (range(&near), range(&far));
        assert!(far_less < near_less && near_less < 1000 && 1000 < near_more && near_more < far_more);
        assert!(draws(1, &[1000, 1200]).factors().is_none());
    }

    #[test]
    fn the_largest_of_five_steps_rarely_stays_below_the_sixth_of_fifteen() {
        // C(10, 5) / C(20, 5) = 1.6 %, and C(11, 5) / C(20, 5) = 3.0 %.
        assert_eq!(order_of_lower_bound(15, 5), Some(5));
        assert_eq!(order_of_lower_bound(6, 2), None);
        assert_eq!(order_of_lower_bound(6, 3), Some(0));
    }
}

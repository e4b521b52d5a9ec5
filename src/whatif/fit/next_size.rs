//! Which size to run next, to find the largest that fits in few runs.

/// If too few runs are left to search exactly below a failed size, the next size is lower by 1/this, and by twice that
/// after each further failure.
const STEP_DOWN: u64 = 64;

/// If a predicted size fails and another run is left, the next size is lower by 1/this: predictions are at most that
/// much too high.
const FIRST_STEP_DOWN: u64 = 8;

/// If no more than this many runs are left, and bisection takes more, the answer cannot be exact.
const FEW_RUNS: u32 = 3;

/// How far below `failed` to run next, after `failures` failed runs.
pub(crate) fn step_below(failed: u64, failures: u32) -> u64 {
    failed.div_ceil(STEP_DOWN).saturating_mul(1 << failures.saturating_sub(1).min(6))
}

/// How far to go after this number of guesses that were wrong in the same direction.
fn stride(wrong_guesses: u32) -> u64 {
    1 << wrong_guesses.min(40)
}

/// The size at which a program reserves `bytes`, on the line through the last two of `points`: each is a size and the bytes
/// reserved there, in ascending order. `None` if they do not grow.
pub(crate) fn size_on_line(points: &[(u64, u64)], bytes: u64) -> Option<u64> {
    let [.., (size_before, bytes_before), (size, reserved)] = points else { return None };
    let grown = reserved.checked_sub(*bytes_before).filter(|grown| *grown > 0)?;
    let room = i128::from(bytes) - i128::from(*reserved);
    let more = room * i128::from(size - size_before) / i128::from(grown);
    u64::try_from((i128::from(*size) + more).max(0)).ok()
}

/// The bounds of the answer, as numbers from 1 on: sizes, or the multiples of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bracket {
    /// The largest known to fit; 0 if none is.
    pub low: u64,
    /// The smallest known to fail.
    pub high: Option<u64>,
}

/// Chooses sizes. A guess that fails, or fits while its successor fits too, is followed by others in growing strides.
#[derive(Debug, Default)]
pub struct SizeChooser {
    guesses_too_high: u32,
    guesses_too_low: u32,
    /// The failure below which the last size was chosen.
    below: Option<u64>,
}

impl SizeChooser {
    /// The next number to run; `None` if the answer is known. While `runs_left` suffices, it is near `guess`; then the
    /// bracket is bisected. With too few runs for that, it is far enough below a failure to be likely to fit. Without a
    /// guess, it grows by as much as the remaining runs can bisect.
    pub fn next(&mut self, bracket: Bracket, guess: Option<u64>, runs_left: u32) -> Option<u64> {
        let Bracket { low, high } = bracket;
        let width = high.map_or(u64::MAX, |high| high.saturating_sub(low));
        if width <= 1 {
            return None;
        }
        // A guess far outside of the bracket is of no use.
        let guess = guess
            .filter(|guess| guess.saturating_mul(2) >= low && high.is_none_or(|high| *guess <= high.saturating_mul(2)));
        let bisections = (width - 1).ilog2() + 1;
        let is_short = runs_left < bisections && runs_left <= FEW_RUNS;
        let next = match guess {
            // One run shrinks the bracket by one at least: bisection needs the rest.
            _ if high.is_some() && runs_left <= bisections && !is_short => low + width / 2,
            Some(guess) if high.is_some_and(|high| guess >= high) => {
                self.guesses_too_high += 1;
                let failures = self.guesses_too_high;
                let failed = low + width;
                let step = match self.below.replace(failed) {
                    _ if !is_short => stride(failures - 1),
                    None if runs_left > 1 => failed.div_ceil(FIRST_STEP_DOWN),
                    Some(below) if below > failed => width, // that failed, too: halfway
                    _ => step_below(failed, 1),
                };
                low + width.saturating_sub(step).max(width / 2)
            }
            Some(guess) if guess <= low => {
                self.guesses_too_low += 1;
                low.saturating_add(stride(self.guesses_too_low - 1).min(width / 2))
            }
            Some(guess) => guess,
            None if high.is_some() => low + width / 2,
            None => low.saturating_add(stride(runs_left.saturating_sub(1))),
        };
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_the_last_two_points_goes_both_ways() {
        let points = [(1, 90), (4, 100), (8, 200)];
        let sizes = [0, 150, 200, 300].map(|bytes| size_on_line(&points, bytes));
        assert_eq!(sizes, [Some(0), Some(6), Some(8), Some(12)]);
        assert_eq!(size_on_line(&[(4, 100), (8, 100)], 300), None);
        assert_eq!(size_on_line(&points[..1], 300), None);
    }

    /// Runs until `largest` is known: the answer, and the number of runs after the first two.
    fn search(largest: u64, given: [u64; 2], guess: impl Fn(u64) -> Option<u64>) -> (u64, u32) {
        let low = given.into_iter().filter(|number| *number <= largest).max().unwrap_or(0);
        let mut bracket = Bracket { low, high: given.into_iter().find(|number| *number > largest) };
        let mut chooser = SizeChooser::default();
        for run in 0..10 {
            let Some(next) = chooser.next(bracket, guess(bracket.low), 10 - run) else {
                return (bracket.low, run);
            };
            assert!(next > bracket.low && bracket.high.is_none_or(|high| next < high), "{bracket:?}: {next}");
            if next <= largest {
                bracket.low = next;
            } else {
                bracket.high = Some(next);
            }
        }
        assert_eq!(bracket.high, Some(bracket.low + 1), "{largest} from {given:?}");
        (bracket.low, 10)
    }

    #[test]
    fn good_guesses_need_few_runs() {
        assert_eq!(search(114, [4, 8], |_| Some(114)), (114, 2));
        assert_eq!(search(114, [4, 8], |_| Some(112)), (114, 4));
        assert_eq!(search(114, [4, 8], |_| Some(117)), (114, 4));
    }

    #[test]
    fn few_runs_find_a_size_that_fits_close_below_a_failure() {
        for (low, high, runs_left, next) in [
            (8, 1000, 2, Some(875)),
            (8, 114, 2, Some(99)),
            (8, 114, 1, Some(112)),
            (112, 114, 1, Some(113)),
            (113, 114, 0, None),
        ] {
            let bracket = Bracket { low, high: Some(high) };
            assert_eq!(SizeChooser::default().next(bracket, Some(high), runs_left), next);
        }
    }

    #[test]
    fn a_prediction_that_fails_is_followed_by_less_and_then_by_half() {
        // The answer of two more runs, if 1,000 was predicted, has failed, and `largest` is right.
        for (largest, answer) in [(990, 984), (900, 875), (480, 441)] {
            let (mut bracket, mut chooser) = (Bracket { low: 8, high: Some(1000) }, SizeChooser::default());
            for runs_left in [2, 1] {
                let next = chooser.next(bracket, Some(1000), runs_left).unwrap();
                if next <= largest { bracket.low = next } else { bracket.high = Some(next) }
            }
            assert_eq!(bracket.low, answer);
        }
    }

    #[test]
    fn wrong_guesses_and_none_are_bisected() {
        type Guess = fn(u64) -> Option<u64>;
        let guesses: [(u64, Guess); 6] = [
            (1031, |_| None),
            (1031, |_| Some(1)),
            (500, |largest| Some(largest * 97 / 100)),
            (500, |largest| Some(largest * 103 / 100)),
            (300, |largest| Some(2 * largest)),
            (60, |largest| Some(10 * largest)),
        ];
        for (nth, (end, guess)) in guesses.into_iter().enumerate() {
            for largest in 8..end {
                assert_eq!(search(largest, [4, 8], |_| guess(largest)).0, largest, "{nth}");
            }
        }
    }

    #[test]
    fn sizes_far_below_are_found() {
        for largest in 0..900 {
            assert_eq!(search(largest, [900, 2000], |_| None).0, largest);
        }
    }
}

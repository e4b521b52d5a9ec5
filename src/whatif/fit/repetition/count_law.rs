//! The number of repetitions as a function of the size.

use super::super::chunks::Chunks;

/// How many repetitions there are more than in the base recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountLaw {
    /// `repetitions` more for each `units` of the size. Where that is no whole number, the last repetition is assumed
    /// to be as large as the others.
    Line { repetitions: i64, units: i64, base_size: i64 },
    /// The last repetition takes what is left, which recordings show.
    Chunks(Chunks),
}

/// Larger sizes are not predicted.
const MAX_SIZE: i64 = 1 << 40;
impl CountLaw {
    /// `points` have the size of each recording and its repetitions more than those of `base_size`; `None` if no line
    /// goes through all.
    pub(super) fn fit(base_size: u64, points: &[(u64, i64)]) -> Option<Self> {
        let base_size = i64::try_from(base_size).ok()?;
        let points: Vec<(i64, i64)> =
            points.iter().map(|(size, more)| Some((i64::try_from(*size).ok()?, *more))).collect::<Option<_>>()?;
        let (size, more) = *points.first()?;
        let common = greatest_common_divisor(more.unsigned_abs(), (size - base_size).unsigned_abs());
        let common = i64::try_from(common).ok().filter(|common| *common > 0)?;
        let sign = (size - base_size).signum();
        let (repetitions, units) = (more / common * sign, (size - base_size) / common * sign);
        let is_on_line =
            points.iter().all(|(size, more)| more.checked_mul(units) == (size - base_size).checked_mul(repetitions));
        (repetitions > 0 && is_on_line).then_some(Self::Line { repetitions, units, base_size })
    }

    /// The repetitions at `size` more than in the base recording.
    pub(super) fn at(self, size: u64) -> Option<i64> {
        let size = i64::try_from(size).ok().filter(|size| *size < MAX_SIZE)?;
        match self {
            Self::Line { repetitions, units, base_size } => {
                let more = (size - base_size).checked_mul(repetitions)?;
                Some(more.div_euclid(units) + i64::from(more.rem_euclid(units) > 0))
            }
            Self::Chunks(chunks) => chunks.more_at(size),
        }
    }

    /// Repetitions, and the units of the size that they take.
    pub(super) fn rate(self) -> [u64; 2] {
        match self {
            Self::Line { repetitions, units, .. } => [repetitions, units].map(i64::unsigned_abs),
            Self::Chunks(chunks) => chunks.rate(),
        }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn more(base: u64, points: &[(u64, i64)], size: u64) -> Option<i64> {
        CountLaw::fit(base, points)?.at(size)
    }

    #[test]
    fn layers_tokens_and_chunks() {
        assert_eq!(more(20, &[(12, -8)], 33), Some(13));
        assert_eq!(more(32, &[(12, -40), (20, -24)], 33), Some(2));
        // Chunks of 4: the last one is assumed to be whole.
        assert_eq!([32, 33, 36, 37].map(|size| more(20, &[(12, -2)], size)), [3, 4, 4, 5].map(Some));
        assert_eq!(more(33, &[(12, -6), (20, -5)], 40), None);
    }
}

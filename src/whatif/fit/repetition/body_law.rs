//! The bytes of a request in each repetition.

use super::super::law::Law;
use super::super::polynomial::Point;

/// The bytes of a request in each repetition: a polynomial of its index, with a law for each coefficient.
#[derive(Debug, Clone)]
pub(super) enum BodyLaw {
    /// All repetitions request the same.
    Equal(Law),
    Varying([Line; COEFFICIENTS]),
}

pub(super) const COEFFICIENTS: usize = 3;

/// A coefficient as a function of the size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    origin: (i64, i64),
    slope: (i64, i64),
}

/// The coefficients of a polynomial by binomials: `c0 + c1 * i + c2 * i * (i - 1) / 2`, as its values show them. Those
/// that the values do not show are `None`.
pub(super) type Binomials = [Option<i64>; COEFFICIENTS];

/// The binomials of the polynomial through the first `values`.
pub(super) fn binomials(values: &[u64]) -> Binomials {
    let value = |index: usize| values.get(index).and_then(|value| i64::try_from(*value).ok());
    let (first, second, third) = (value(0), value(1), value(2));
    let rise = |from: Option<i64>, to: Option<i64>| to?.checked_sub(from?);
    [first, rise(first, second), rise(rise(first, second), rise(second, third))]
}

/// The value of a polynomial at `index`.
pub(super) fn value_at(coefficients: [i64; COEFFICIENTS], index: i64) -> Option<u64> {
    let [c0, c1, c2] = coefficients.map(i128::from);
    let index = i128::from(index);
    let linear = c0.checked_add(c1.checked_mul(index)?)?;
    let value = linear.checked_add(c2.checked_mul(index.checked_mul(index - 1)? / 2)?)?;
    u64::try_from(value).ok()
}

/// The sizes and repetitions of the recordings, the base recording first.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedSize {
    pub(super) size: u64,
    /// Repetitions more than in the base recording.
    pub(super) extra: i64,
}

impl BodyLaw {
    /// `coefficients` has those of each recording.
    pub(super) fn fit(sizes: &[RecordedSize], coefficients: &[Binomials]) -> Option<Self> {
        let is_equal = coefficients.iter().all(|[_, c1, c2]| c1.unwrap_or(0) == 0 && c2.unwrap_or(0) == 0);
        if is_equal {
            let points = sizes
                .iter()
                .zip(coefficients)
                .map(|(recorded, [first, ..])| Some((recorded.size, u64::try_from((*first)?).ok()?)));
            let mut points: Vec<Point> = points.collect::<Option<_>>()?;
            points.sort_unstable();
            return Law::fit(&points).filter(|law| !law.is_guess()).map(Self::Equal);
        }
        let lines = [0, 1, 2].map(|index| {
            let known = sizes.iter().zip(coefficients);
            let points = known.filter_map(|(recorded, all)| Some((i64::try_from(recorded.size).ok()?, all[index]?)));
            Line::through(&points.collect::<Vec<_>>())
        });
        let [c0, c1, c2] = lines;
        // A coefficient that no recording shows is 0.
        Some(Self::Varying([c0?, c1?, c2.or_else(|| Line::through(&[(0, 0), (1, 0)]))?]))
    }

    /// The bytes of repetition `index`, counted from the first regular one.
    pub(super) fn bytes_at(&self, size: u64, index: i64) -> Option<u64> {
        match self {
            Self::Equal(law) => Some(law.bytes_at(size)),
            Self::Varying(lines) => {
                let [c0, c1, c2] = lines.map(|line| line.value_at(size));
                value_at([c0?, c1?, c2?], index)
            }
        }
    }
}

impl Line {
    /// The line through all points; `None` for a single one.
    fn through(points: &[(i64, i64)]) -> Option<Self> {
        let ((x, y), (other_x, other_y)) = (*points.first()?, *points.get(1)?);
        let slope = (other_y - y, other_x - x);
        let is_on = |(px, py): &(i64, i64)| {
            i128::from(py - y) * i128::from(slope.1) == i128::from(px - x) * i128::from(slope.0)
        };
        (slope.1 != 0 && points.iter().all(is_on)).then_some(Self { origin: (x, y), slope })
    }

    fn value_at(self, size: u64) -> Option<i64> {
        let rise = i128::from(i64::try_from(size).ok()? - self.origin.0) * i128::from(self.slope.0);
        i64::try_from(i128::from(self.origin.1) + rise / i128::from(self.slope.1)).ok()
    }
}

//! Polynomials in the size, fitted to the bytes of a request at some sizes.

/// A size, and the bytes of one request at it.
pub(super) type Point = (u64, u64);

/// The powers of the size that a polynomial may have: 0 to 2. A set of them is a `u32` with a bit for each.
const POWERS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Polynomial {
    /// A size and the bytes there. Values are computed as differences from them, which keeps large numbers exact.
    origin: (u64, f64),
    /// The powers with a coefficient.
    pub(super) powers: u32,
    /// The coefficient of each power. That of the constant is unused, because `origin` replaces it.
    coefficients: [f64; POWERS],
    /// It goes through all points.
    pub(super) is_exact: bool,
    /// It has as many powers as there are points, so other polynomials go through the same points.
    pub(super) is_underdetermined: bool,
    /// It is underdetermined and not a plausible line, so the others may be far from it at larger sizes.
    pub(super) is_guess: bool,
}

/// Kernels pad rows, tables and workspaces by up to this share.
const PADDING_TOLERANCE: f64 = 0.02;
/// The powers of a line, 0 and 1.
const LINE: u32 = 0b011;
/// The powers of a parabola that is 0 at size 0.
const STEEP: u32 = 0b110;
/// Sets of two and of three powers, simplest first.
const SPARSE: [u32; 4] = [LINE, 0b101, STEEP, 0b111];

fn powers_of(set: u32) -> impl Iterator<Item = usize> {
    (0..POWERS).filter(move |power| set >> power & 1 == 1)
}

fn evaluate(power: usize, size: u64) -> f64 {
    (0..power).map(|_| size as f64).product()
}

impl Polynomial {
    /// The bytes at `size`, at least 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn bytes_at(&self, size: u64) -> u64 {
        (self.value_at(size).round() as u64).max(1)
    }

    fn value_at(&self, size: u64) -> f64 {
        let (origin, bytes) = self.origin;
        let increase = powers_of(self.powers & !1)
            .map(|power| self.coefficients[power] * (evaluate(power, size) - evaluate(power, origin)));
        bytes + increase.sum::<f64>()
    }
}

/// The points that a polynomial is fitted to, at different sizes.
pub(super) struct Points<'p> {
    pub(super) all: &'p [Point],
    pub(super) largest: Point,
}

impl Points<'_> {
    /// The simplest polynomial that goes through all points, with at least one point more than terms; one that is no
    /// guess, if there is any.
    pub(super) fn fit_sparse(&self) -> Option<Polynomial> {
        let has_few_terms = |powers: &u32| (powers.count_ones() as usize) < self.all.len();
        let candidates = SPARSE.into_iter().filter(has_few_terms).filter_map(|powers| self.fit_powers(powers));
        let mut guess = None;
        for sum in candidates.filter(|sum| sum.is_exact) {
            if !sum.is_guess {
                return Some(sum);
            }
            guess = guess.or(Some(sum));
        }
        guess
    }

    /// A line, or a parabola if bytes rise steeply.
    pub(super) fn fit_dense(&self) -> Option<Polynomial> {
        let steep = if self.rises_steeply() { self.fit_powers(STEEP) } else { None };
        steep.or_else(|| self.fit_powers(LINE))
    }

    /// Whether there are only two points, and bytes grow with the square of the size rather than in proportion. Bytes
    /// are products of lengths, which have no large negative parts, so a line that starts far below zero is not
    /// plausible.
    fn rises_steeply(&self) -> bool {
        let [one, other] = self.all else { return false };
        let (smaller, fewer_bytes) = *one.min(other);
        let (size, bytes) = self.largest;
        bytes as f64 / fewer_bytes as f64 > (size as f64 / smaller as f64).powf(1.5)
    }

    /// The least-squares polynomial with these powers; `None` if the points do not tell them apart.
    fn fit_powers(&self, powers: u32) -> Option<Polynomial> {
        let rows = self.all.iter();
        let mut columns: Vec<Vec<f64>> = powers_of(powers & !1)
            .map(|power| rows.clone().map(|(size, _)| evaluate(power, *size)).collect())
            .collect();
        columns.push(rows.map(|(_, bytes)| *bytes as f64).collect());
        if powers & 1 == 1 {
            for column in &mut columns {
                let mean = column.iter().sum::<f64>() / column.len() as f64;
                for value in column {
                    *value -= mean;
                }
            }
        }
        let solution = least_squares(columns)?;
        let mut coefficients = [0.0; POWERS];
        for (power, factor) in powers_of(powers & !1).zip(solution) {
            coefficients[power] = factor;
        }
        let (size, bytes) = self.largest;
        let origin = (size, bytes as f64);
        let is_underdetermined = powers.count_ones() as usize >= self.all.len();
        let mut polynomial =
            Polynomial { origin, powers, coefficients, is_exact: true, is_underdetermined, is_guess: false };
        // An approximation need not go through the largest point.
        let offset = self.all.iter().map(|(size, bytes)| *bytes as f64 - polynomial.value_at(*size));
        let offset = offset.sum::<f64>() / self.all.len() as f64;
        if offset.abs() > 0.5 {
            polynomial.origin.1 += offset;
        }
        let is_negative_at_zero = polynomial.value_at(0) < -PADDING_TOLERANCE * bytes as f64;
        polynomial.is_guess = is_underdetermined && (powers != LINE || is_negative_at_zero);
        polynomial.is_exact = self.all.iter().all(|(size, bytes)| polynomial.bytes_at(*size) == *bytes);
        Some(polynomial)
    }
}

/// Solves for the factors of all columns but the last whose sum approximates the last column best; `None` if a column
/// depends on others. Uses the modified Gram-Schmidt process.
fn least_squares(mut columns: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let count = columns.len() - 1;
    let squared_norms: Vec<f64> = columns.iter().map(|column| dot(column, column)).collect();
    let mut projections = vec![vec![0.0; count + 1]; count];
    for index in 0..count {
        let (done, rest) = columns.split_at_mut(index + 1);
        let square = dot(&done[index], &done[index]);
        if square <= squared_norms[index] * COLLINEAR {
            return None;
        }
        for (column, projection) in rest.iter_mut().zip(&mut projections[index][index + 1..]) {
            *projection = dot(&done[index], column) / square;
            column.iter_mut().zip(&done[index]).for_each(|(value, of)| *value -= *projection * of);
        }
    }
    let mut solution = vec![0.0; count];
    for index in (0..count).rev() {
        let later: f64 = (index + 1..count).map(|later| projections[index][later] * solution[later]).sum();
        solution[index] = projections[index][count] - later;
    }
    Some(solution)
}

/// A column depends on others if less than this share of its squared norm remains, which may be rounding errors.
const COLLINEAR: f64 = 1e-20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::law::{Law, LawKind};
    use super::*;

    fn learned(sizes: &[u64], of: impl Fn(u64) -> u64) -> Law {
        Law::fit(&sizes.iter().map(|size| (*size, of(*size))).collect::<Vec<_>>()).unwrap()
    }

    /// One position more than the data has: a guess with two lengths, exact with four.
    #[test]
    fn a_bend_takes_more_sizes() {
        let of = |size: u64| (size + 1) * (size + 1) * 4;
        assert!(learned(&[64, 128], of).is_guess());
        let four = learned(&[64, 128, 192, 256], of);
        assert_eq!((four.bytes_at(512), four.kind()), (of(512), LawKind::Parabola));
        assert!(!four.is_guess());
    }

    #[test]
    fn padding_is_not_taken_for_a_bend() {
        let of = |size: u64| (size * 700).next_multiple_of(2048);
        let law = learned(&[100, 170, 301], of);
        assert_eq!(law.kind(), LawKind::Near);
        let error = law.bytes_at(500).abs_diff(of(500));
        assert!(error * 100 < of(500), "{error}");
    }

    proptest! {
        #[test]
        fn recordings_are_reproduced(
            sizes in prop::collection::btree_set(1u64..5000, 2..5),
            bytes in prop::collection::vec(1u64..1 << 36, 4),
        ) {
            let points: Vec<Point> = sizes.into_iter().zip(bytes).collect();
            let law = Law::fit(&points).unwrap();
            if law.kind() != LawKind::Near {
                for (size, bytes) in &points {
                    prop_assert!(law.bytes_at(*size).abs_diff(*bytes) <= bytes / 50 + 1, "{law:?} at {size:?}");
                }
            }
        }
    }
}

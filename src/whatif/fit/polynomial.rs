//! Polynomials in the two numbers of a size, fitted to the bytes of a request at some sizes.

use super::size::Numbers;

/// A size, and the bytes of one request at it.
pub(super) type Point = (Numbers, u64);

/// The exponents of the two numbers in a monomial.
pub(super) type Exponents = [u32; 2];

/// The monomials that a polynomial may have, simplest first. A set of them is a `u16` with a bit for each.
const MONOMIALS: [Exponents; 9] = [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [0, 2], [2, 1], [1, 2], [2, 2]];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Polynomial {
    /// A size and the bytes there. Values are computed as differences from them, which keeps large numbers exact.
    origin: (Numbers, f64),
    /// The set of monomials with a coefficient.
    terms: u16,
    /// The coefficient of each monomial. That of the constant is unused, because `origin` replaces it.
    coefficients: [f64; MONOMIALS.len()],
    /// It goes through all points.
    pub(super) is_exact: bool,
    /// It has as many powers of a number as there are values of that number, so other polynomials go through the same
    /// points.
    pub(super) is_underdetermined: bool,
    /// It is underdetermined and not a plausible line, so the others may be far from it at larger sizes.
    pub(super) is_guess: bool,
}

/// Kernels pad rows, tables and workspaces by up to this share.
const PADDING_TOLERANCE: f64 = 0.02;
/// The powers of a line, 0 and 1, a bit for each.
const LINE: u32 = 0b011;
/// A sparse polynomial has at most this many terms, and fewer than there are points.
const MAX_SPARSE_TERMS: u32 = 3;

fn monomials(terms: u16) -> impl Iterator<Item = (usize, Exponents)> {
    MONOMIALS.into_iter().enumerate().filter(move |(index, _)| terms >> index & 1 == 1)
}

/// The terms of which `is_wanted` holds.
fn select_terms(is_wanted: impl Fn(Exponents) -> bool) -> u16 {
    let wanted = MONOMIALS.iter().enumerate().filter(|(_, powers)| is_wanted(**powers));
    wanted.fold(0, |all, (index, _)| all | 1 << index)
}

/// The same terms, each multiplied by one of the numbers.
fn raise_degree(terms: u16, dimension: usize) -> u16 {
    let raised = monomials(terms).map(|(_, mut powers)| {
        powers[dimension] += 1;
        powers
    });
    let raised: Vec<Exponents> = raised.collect();
    select_terms(|powers| raised.contains(&powers))
}

fn evaluate(powers: Exponents, size: Numbers) -> f64 {
    (size[0] as f64).powi(powers[0].cast_signed()) * (size[1] as f64).powi(powers[1].cast_signed())
}

impl Polynomial {
    /// The bytes at `size`, at least 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn bytes_at(&self, size: Numbers) -> u64 {
        (self.value_at(size).round() as u64).max(1)
    }

    /// The powers of a number that it has, a bit for each.
    pub(super) fn exponents(&self, dimension: usize) -> u32 {
        monomials(self.terms).map(|(_, powers)| 1 << powers[dimension]).fold(0, |all, bit| all | bit)
    }

    /// For each power of the other number, the powers of this number in its terms, a bit for each. Only different
    /// values of this number can tell these terms apart.
    fn powers_by_other(&self, dimension: usize) -> impl Iterator<Item = u32> {
        let terms_with =
            move |other: u32, terms: u16| monomials(terms).filter(move |(_, powers)| powers[1 - dimension] == other);
        let terms = self.terms;
        (0..3).map(move |other| terms_with(other, terms).fold(0, |all, (_, powers)| all | 1 << powers[dimension]))
    }

    fn value_at(&self, size: Numbers) -> f64 {
        let (origin, bytes) = self.origin;
        let increase = monomials(self.terms & !1)
            .map(|(index, powers)| self.coefficients[index] * (evaluate(powers, size) - evaluate(powers, origin)));
        bytes + increase.sum::<f64>()
    }
}

/// The points that a polynomial is fitted to.
pub(super) struct Points<'p> {
    pub(super) all: &'p [Point],
    largest: Point,
    /// How many different values of each number there are.
    pub(super) values: [usize; 2],
}

impl<'p> Points<'p> {
    pub(super) fn new(points: &'p [Point], largest: Point) -> Self {
        let values = [0, 1].map(|dimension| {
            let mut all: Vec<u64> = points.iter().map(|(size, _)| size[dimension]).collect();
            all.sort_unstable();
            all.dedup();
            all.len()
        });
        Self { all: points, largest, values }
    }

    /// The simplest polynomial with few terms that goes through all points, with at least one point more than terms; one
    /// that is no guess, if there is any.
    pub(super) fn fit_sparse(&self) -> Option<Polynomial> {
        let varying = select_terms(|powers| (0..2).all(|index| powers[index] == 0 || self.values[index] > 1));
        let max_terms =
            u32::try_from(self.all.len()).map_or(MAX_SPARSE_TERMS, |points| MAX_SPARSE_TERMS.min(points - 1));
        let exact = (2..=max_terms).flat_map(|count| {
            let candidates =
                (0..1 << MONOMIALS.len()).filter(|terms: &u16| terms.count_ones() == count && terms & !varying == 0);
            let mut candidates: Vec<u16> = candidates.collect();
            let degree = |terms: u16| monomials(terms).map(|(_, [i, j])| i + j).sum::<u32>();
            candidates.sort_by_key(|terms| (degree(*terms), *terms));
            candidates.into_iter().filter_map(|terms| self.fit_terms(terms).filter(|sum| sum.is_exact))
        });
        let mut guess = None;
        for sum in exact {
            if !sum.is_guess {
                return Some(sum);
            }
            guess = guess.or(Some(sum));
        }
        guess
    }

    /// A line in each number, or a parabola if bytes rise steeply.
    pub(super) fn fit_dense(&self) -> Option<Polynomial> {
        let max_degrees = self.values.map(|values| u32::from(values > 1));
        let linear_terms = select_terms(|[i, j]| i <= max_degrees[0] && j <= max_degrees[1]);
        let linear = (0..2).fold(linear_terms, |terms, dimension| {
            if self.rises_steeply(dimension) { raise_degree(terms, dimension) } else { terms }
        });
        self.fit_terms(linear).or_else(|| self.fit_terms(linear_terms))
    }

    /// Whether there are only two values of a number, and bytes grow with its square rather than in proportion. Bytes
    /// are products of lengths, which have no large negative parts, so a line that starts far below zero is not
    /// plausible.
    fn rises_steeply(&self, dimension: usize) -> bool {
        let (size, bytes) = self.largest;
        let is_smaller =
            |other: &&Point| other.0[1 - dimension] == size[1 - dimension] && other.0[dimension] < size[dimension];
        let other = self.all.iter().find(is_smaller).filter(|_| self.values[dimension] == 2);
        other.is_some_and(|(smaller, fewer_bytes)| {
            let times = size[dimension] as f64 / smaller[dimension] as f64;
            bytes as f64 / *fewer_bytes as f64 > times.powf(1.5)
        })
    }

    /// The least-squares polynomial with `terms`; `None` if the points do not tell these terms apart.
    fn fit_terms(&self, terms: u16) -> Option<Polynomial> {
        let rows = self.all.iter();
        let mut columns: Vec<Vec<f64>> = monomials(terms & !1)
            .map(|(_, powers)| rows.clone().map(|(size, _)| evaluate(powers, *size)).collect())
            .collect();
        columns.push(rows.map(|(_, bytes)| *bytes as f64).collect());
        if terms & 1 == 1 {
            for column in &mut columns {
                let mean = column.iter().sum::<f64>() / column.len() as f64;
                for value in column {
                    *value -= mean;
                }
            }
        }
        let solution = least_squares(columns)?;
        let mut coefficients = [0.0; MONOMIALS.len()];
        for ((index, _), factor) in monomials(terms & !1).zip(solution) {
            coefficients[index] = factor;
        }
        let (size, bytes) = self.largest;
        let origin = (size, bytes as f64);
        let mut polynomial =
            Polynomial { origin, terms, coefficients, is_exact: true, is_underdetermined: false, is_guess: false };
        // An approximation need not go through the largest point.
        let offset = self.all.iter().map(|(size, bytes)| *bytes as f64 - polynomial.value_at(*size));
        let offset = offset.sum::<f64>() / self.all.len() as f64;
        if offset.abs() > 0.5 {
            polynomial.origin.1 += offset;
        }
        let underdetermined = |dimension| {
            let powers = polynomial.powers_by_other(dimension);
            powers.filter(move |powers| {
                let count = powers.count_ones() as usize;
                count > 1 && count >= self.values[dimension]
            })
        };
        let bends = |dimension| {
            underdetermined(dimension).any(|powers| powers != LINE || self.is_negative_at_zero(&polynomial, dimension))
        };
        let is_guess = (0..2).any(bends);
        polynomial.is_underdetermined = (0..2).any(|dimension| underdetermined(dimension).next().is_some());
        polynomial.is_guess = is_guess;
        polynomial.is_exact = self.all.iter().all(|(size, bytes)| polynomial.bytes_at(*size) == *bytes);
        Some(polynomial)
    }

    /// Whether `sum` is clearly negative where one of the numbers is 0.
    fn is_negative_at_zero(&self, sum: &Polynomial, dimension: usize) -> bool {
        let mut at_zero = self.largest.0;
        at_zero[dimension] = 0;
        sum.value_at(at_zero) < -PADDING_TOLERANCE * self.largest.1 as f64
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

    /// The bytes of a request at `n`, given its monomials and their coefficients.
    fn sum(terms: &[(Exponents, u64)], size: Numbers) -> u64 {
        let projection = |([i, j], bytes): &(Exponents, u64)| bytes * size[0].pow(*i) * size[1].pow(*j);
        terms.iter().map(projection).sum()
    }

    fn learned(firsts: &[u64], seconds: &[u64], of: impl Fn(Numbers) -> u64) -> Law {
        let sizes = firsts.iter().flat_map(|first| seconds.iter().map(|second| [*first, *second]));
        Law::fit(&sizes.map(|size| (size, of(size))).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn four_sizes_determine_products_and_few_terms() {
        for (terms, kinds) in [
            (&[([0, 0], 700)][..], [LawKind::Constant, LawKind::Constant]),
            (&[([1, 0], 4)], [LawKind::Linear, LawKind::Constant]),
            (&[([1, 1], 1024)], [LawKind::Linear, LawKind::Linear]),
            (&[([1, 2], 16)], [LawKind::Linear, LawKind::Quadratic]),
            (&[([0, 2], 16)], [LawKind::Constant, LawKind::Quadratic]),
            (&[([1, 2], 16), ([0, 0], 5000)], [LawKind::Line, LawKind::Parabola]),
            (&[([1, 1], 1024), ([0, 0], 700)], [LawKind::Line, LawKind::Line]),
            (&[([1, 1], 1024), ([1, 0], 700)], [LawKind::Linear, LawKind::Line]),
            (&[([1, 1], 64), ([1, 0], 30), ([0, 1], 7)], [LawKind::Line, LawKind::Line]),
            (&[([1, 1], 64), ([1, 0], 30), ([0, 1], 7), ([0, 0], 11)], [LawKind::Line, LawKind::Line]),
        ] {
            let law = learned(&[2, 4], &[512, 1024], |size| sum(terms, size));
            assert_eq!([0, 1].map(|number| law.kind(number)), kinds, "{terms:?}");
            for size in [[3, 700], [16, 2048], [31, 100]] {
                assert_eq!(law.bytes_at(size), sum(terms, size), "{terms:?} at {size:?}");
            }
            assert!(!law.is_guess());
        }
    }

    /// One position more than the data has: a guess with two lengths, exact with three.
    #[test]
    fn a_bend_takes_three_sizes() {
        let of = |[a, b]: Numbers| a * (b + 1) * (b + 1) * 4;
        let two = learned(&[2, 4], &[64, 128], of);
        assert!(two.is_guess());
        let three = learned(&[2, 4], &[64, 128, 192], of);
        assert_eq!((three.bytes_at([16, 512]), three.kind(1)), (of([16, 512]), LawKind::Parabola));
        let four = learned(&[2, 4], &[64, 128, 192, 256], of);
        assert!(three.is_guess() && !four.is_guess());
    }

    #[test]
    fn padding_is_not_taken_for_a_bend() {
        let of = |[a, b]: Numbers| (a * b * 100).next_multiple_of(2048);
        let law = learned(&[3, 5, 9], &[100, 170, 301], of);
        assert_eq!(law.kind(0), LawKind::Near);
        let error = law.bytes_at([20, 500]).abs_diff(of([20, 500]));
        assert!(error * 100 < of([20, 500]), "{error}");
    }

    proptest! {
        #[test]
        fn a_grid_reproduces_its_recordings(
            firsts in prop::collection::btree_set(1u64..200, 2..4),
            seconds in prop::collection::btree_set(1u64..5000, 2..4),
            bytes in prop::collection::vec(1u64..1 << 36, 9),
        ) {
            let (firsts, seconds) = (Vec::from_iter(firsts), Vec::from_iter(seconds));
            let sizes = firsts.iter().flat_map(|a| seconds.iter().map(|b| [*a, *b]));
            let points: Vec<Point> = sizes.zip(bytes).collect();
            let law = Law::fit(&points).unwrap();
            if law.kind(0) != LawKind::Near {
                for (size, bytes) in &points {
                    prop_assert!(law.bytes_at(*size).abs_diff(*bytes) <= bytes / 50 + 1, "{law:?} at {size:?}");
                }
            }
            if points.len() == 4 {
                for (size, bytes) in &points {
                    prop_assert_eq!(law.bytes_at(*size), *bytes);
                }
            }
        }

        /// Swapping the numbers swaps the result, and a number without influence can be left out.
        #[test]
        fn swapped_numbers_swap_the_law(
            factor in 1u64..1 << 12, more in 0u64..1 << 20, powers in [0u32..3, 0..3],
            a in [1u64..64, 65..128], b in [1u64..2048, 2049..4096],
        ) {
            let terms = [(powers, factor), ([0, 0], more)];
            let law = learned(&a, &b, |size| sum(&terms, size));
            let turned = learned(&b, &a, |[i, j]| sum(&terms, [j, i]));
            for size in [[a[0], b[1]], [40, 3000], [256, 8192]] {
                let bytes = law.bytes_at(size);
                // Terabytes have more digits than a double.
                prop_assert!(turned.bytes_at([size[1], size[0]]).abs_diff(bytes) <= bytes >> 40);
            }
            prop_assert_eq!(law.kind(0), turned.kind(1));
            if powers[1] == 0 {
                let single: Vec<Point> =
                    a.iter().map(|first| ([*first, 1], sum(&terms, [*first, 1]))).collect();
                let single = Law::fit(&single).unwrap();
                if !single.is_guess() {
                    prop_assert_eq!(single.bytes_at([64, 1]), law.bytes_at([64, 777]));
                    prop_assert_eq!(single.kind(0), law.kind(0));
                }
            }
        }
    }
}

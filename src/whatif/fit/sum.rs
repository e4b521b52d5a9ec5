//! Sums of products of the two numbers of a size, through bytes at some sizes.

use super::size::Numbers;

/// A size, and the bytes of one request at it.
pub(super) type Point = (Numbers, u64);

/// Powers of the two numbers in a product.
pub(super) type Exponents = [u32; 2];

/// What a sum is made of, the simplest first.
const PRODUCTS: [Exponents; 9] =
    [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [0, 2], [2, 1], [1, 2], [2, 2]];

/// Products with a factor each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sum {
    /// A size, and the bytes there: large numbers are told as what is more or less than at it.
    origin: (Numbers, f64),
    /// Which of [`PRODUCTS`] are in it, a bit for each.
    terms: u16,
    /// Of each of them; not asked of the first, which is the same everywhere.
    factors: [f64; PRODUCTS.len()],
    /// Whether it goes by a point, and does not go through it.
    pub(super) is_near: bool,
    /// Whether as many powers of a number are in it as there are points to tell: another sum may go through them.
    pub(super) is_open: bool,
    /// Whether it is open, and bends: then the other is far from it at larger sizes.
    pub(super) is_guess: bool,
}

/// A line that misses no point by more than this part of it is taken for what was meant, and what misses for
/// padding: kernels round up rows, tables and workspaces.
const PADDING: f64 = 0.02;
/// The powers of a line.
const LINE: u32 = 0b011;
/// Sums of so many terms are looked for where more points than these tell that they are right.
const MOST_TERMS: u32 = 3;

fn products(terms: u16) -> impl Iterator<Item = (usize, Exponents)> {
    PRODUCTS.into_iter().enumerate().filter(move |(at, _)| terms >> at & 1 == 1)
}

/// The terms of which `is_wanted` holds.
fn terms_of(is_wanted: impl Fn(Exponents) -> bool) -> u16 {
    let wanted = PRODUCTS.iter().enumerate().filter(|(_, powers)| is_wanted(**powers));
    wanted.fold(0, |all, (at, _)| all | 1 << at)
}

/// The same terms with one power more of one of the numbers.
fn bent(terms: u16, variable: usize) -> u16 {
    let more = products(terms).map(|(_, mut powers)| {
        powers[variable] += 1;
        powers
    });
    let more: Vec<Exponents> = more.collect();
    terms_of(|powers| more.contains(&powers))
}

fn product(powers: Exponents, n: Numbers) -> f64 {
    (n[0] as f64).powi(powers[0].cast_signed()) * (n[1] as f64).powi(powers[1].cast_signed())
}

impl Sum {
    /// The bytes at size `n`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, as meant"
    )]
    pub(super) fn bytes(&self, n: Numbers) -> u64 {
        (self.at(n).round() as u64).max(1)
    }

    /// Which powers of a number are in it, a bit for each.
    pub(super) fn exponents(&self, variable: usize) -> u32 {
        products(self.terms).map(|(_, powers)| 1 << powers[variable]).fold(0, |all, bit| all | bit)
    }

    /// The powers of a number in products that have the same power of the other: only values of that number tell these
    /// apart.
    fn powers_alike(&self, variable: usize) -> impl Iterator<Item = u32> {
        let of = move |other: u32, terms: u16| {
            products(terms).filter(move |(_, powers)| powers[1 - variable] == other)
        };
        let terms = self.terms;
        (0..3).map(move |other| {
            of(other, terms).fold(0, |all, (_, powers)| all | 1 << powers[variable])
        })
    }

    fn at(&self, n: Numbers) -> f64 {
        let (origin, bytes) = self.origin;
        let more = products(self.terms & !1)
            .map(|(at, powers)| self.factors[at] * (product(powers, n) - product(powers, origin)));
        bytes + more.sum::<f64>()
    }
}

/// What a sum is to go through.
pub(super) struct Points<'p> {
    pub(super) all: &'p [Point],
    largest: Point,
    /// How many there are of each number.
    pub(super) values: [usize; 2],
}

impl<'p> Points<'p> {
    pub(super) fn of(points: &'p [Point], largest: Point) -> Self {
        let values = [0, 1].map(|variable| {
            let mut all: Vec<u64> = points.iter().map(|(size, _)| size[variable]).collect();
            all.sort_unstable();
            all.dedup();
            all.len()
        });
        Self { all: points, largest, values }
    }

    /// The simplest sum of few terms through all points, of which there are more than it takes.
    pub(super) fn short_sum(&self) -> Option<Sum> {
        let known = terms_of(|powers| (0..2).all(|at| powers[at] == 0 || self.values[at] > 1));
        let fewer =
            u32::try_from(self.all.len()).map_or(MOST_TERMS, |points| MOST_TERMS.min(points - 1));
        (2..=fewer).find_map(|count| {
            let candidates = (0..1 << PRODUCTS.len())
                .filter(|terms: &u16| terms.count_ones() == count && terms & !known == 0);
            let mut candidates: Vec<u16> = candidates.collect();
            let degree = |terms: u16| products(terms).map(|(_, [i, j])| i + j).sum::<u32>();
            candidates.sort_by_key(|terms| (degree(*terms), *terms));
            candidates.into_iter().find_map(|terms| {
                self.sum(terms).filter(|sum| !sum.is_guess && self.misses(sum) == 0.0)
            })
        })
    }

    /// The sum of all that may be in it: with lines alone, or bent where these come nowhere near.
    pub(super) fn whole_sum(&self) -> Option<Sum> {
        let up_to = |most: [usize; 2]| {
            terms_of(|[i, j]| i as usize <= most[0] && j as usize <= most[1] && i + j <= 3)
        };
        let most = self.values.map(|values| values - 1);
        let lines = up_to(most.map(|most| most.min(1)));
        let line = (0..2).fold(lines, |terms, variable| {
            if self.rises_steeply(variable) { bent(terms, variable) } else { terms }
        });
        let line = self.sum(line).or_else(|| self.sum(lines))?;
        let miss = self.misses(&line);
        if miss == 0.0 {
            return Some(line);
        }
        let curve =
            self.sum(up_to(most)).filter(|curve| miss > PADDING && self.misses(curve) <= PADDING);
        Some(curve.unwrap_or(Sum { is_near: true, ..line }))
    }

    /// Whether two values of a number are all there is, and bytes grow with it rather as its square than in proportion.
    /// Bytes are products of lengths, and these have nothing negative in them but ones: a line that begins far below
    /// nothing is not what was meant.
    fn rises_steeply(&self, variable: usize) -> bool {
        let (size, bytes) = self.largest;
        let is_alike = |other: &&Point| {
            other.0[1 - variable] == size[1 - variable] && other.0[variable] < size[variable]
        };
        let other = self.all.iter().find(is_alike).filter(|_| self.values[variable] == 2);
        other.is_some_and(|(less, fewer)| {
            let times = size[variable] as f64 / less[variable] as f64;
            bytes as f64 / *fewer as f64 > times.powf(1.5)
        })
    }

    /// The sum of `terms` with the least squares; `None` where the points do not tell these terms apart.
    fn sum(&self, terms: u16) -> Option<Sum> {
        let rows = self.all.iter();
        let mut columns: Vec<Vec<f64>> = products(terms & !1)
            .map(|(_, powers)| rows.clone().map(|(n, _)| product(powers, *n)).collect())
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
        let found = least_squares(columns)?;
        let mut factors = [0.0; PRODUCTS.len()];
        for ((at, _), factor) in products(terms & !1).zip(found) {
            factors[at] = factor;
        }
        let (n, bytes) = self.largest;
        let origin = (n, bytes as f64);
        let mut sum =
            Sum { origin, terms, factors, is_near: false, is_open: false, is_guess: false };
        // Where it only comes near, it need not go through the largest.
        let off = self.all.iter().map(|(n, bytes)| *bytes as f64 - sum.at(*n));
        let off = off.sum::<f64>() / self.all.len() as f64;
        if off.abs() > 0.5 {
            sum.origin.1 += off;
        }
        let open = |variable| {
            let powers = sum.powers_alike(variable);
            powers.filter(move |powers| {
                let count = powers.count_ones() as usize;
                count > 1 && count >= self.values[variable]
            })
        };
        let bends =
            |variable| open(variable).any(|powers| powers != LINE || self.falls(&sum, variable));
        let is_guess = (0..2).any(bends);
        sum.is_open = (0..2).any(|variable| open(variable).next().is_some());
        sum.is_guess = is_guess;
        Some(sum)
    }

    /// Whether `sum` would be less than nothing where a number begins.
    fn falls(&self, sum: &Sum, variable: usize) -> bool {
        let mut none = self.largest.0;
        none[variable] = 0;
        sum.at(none) < -PADDING * self.largest.1 as f64
    }

    /// The most by which `sum` misses a point, as a part of it.
    fn misses(&self, sum: &Sum) -> f64 {
        let miss =
            |(n, bytes): &Point| sum.bytes(*n).abs_diff(*bytes) as f64 / (*bytes).max(1) as f64;
        self.all.iter().map(miss).fold(0.0, f64::max)
    }
}

/// What each column but the last is to be taken times, for their sum to come nearest to the last; `None` where one is a
/// sum of others. By the modified method of Gram and Schmidt.
fn least_squares(mut columns: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let count = columns.len() - 1;
    let whole: Vec<f64> = columns.iter().map(|column| dot(column, column)).collect();
    let mut parts = vec![vec![0.0; count + 1]; count];
    for at in 0..count {
        let (done, rest) = columns.split_at_mut(at + 1);
        let square = dot(&done[at], &done[at]);
        if square <= whole[at] * ALIKE {
            return None;
        }
        for (column, part) in rest.iter_mut().zip(&mut parts[at][at + 1..]) {
            *part = dot(&done[at], column) / square;
            column.iter_mut().zip(&done[at]).for_each(|(value, of)| *value -= *part * of);
        }
    }
    let mut factors = vec![0.0; count];
    for at in (0..count).rev() {
        let later: f64 = (at + 1..count).map(|later| parts[at][later] * factors[later]).sum();
        factors[at] = parts[at][count] - later;
    }
    Some(factors)
}

/// What is left of a column's square where others make it up, but for rounding.
const ALIKE: f64 = 1e-20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::law::{Law, LawKind};
    use super::*;

    /// What a request asks for at `n` where it grows as a sum of these products, each of them so many bytes.
    fn sum(terms: &[(Exponents, u64)], n: Numbers) -> u64 {
        let part = |([i, j], bytes): &(Exponents, u64)| bytes * n[0].pow(*i) * n[1].pow(*j);
        terms.iter().map(part).sum()
    }

    fn learned(firsts: &[u64], seconds: &[u64], of: impl Fn(Numbers) -> u64) -> Law {
        let sizes = firsts.iter().flat_map(|first| seconds.iter().map(|second| [*first, *second]));
        Law::through(&sizes.map(|n| (n, of(n))).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn four_sizes_tell_products_and_few_terms() {
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
            (
                &[([1, 1], 64), ([1, 0], 30), ([0, 1], 7), ([0, 0], 11)],
                [LawKind::Line, LawKind::Line],
            ),
        ] {
            let law = learned(&[2, 4], &[512, 1024], |n| sum(terms, n));
            assert_eq!([0, 1].map(|number| law.kind(number)), kinds, "{terms:?}");
            for n in [[3, 700], [16, 2048], [31, 100]] {
                assert_eq!(law.at(n), sum(terms, n), "{terms:?} at {n:?}");
            }
            assert!(!law.is_guess());
        }
    }

    /// One position more than the data have: with two lengths a line, and said to be a guess; with three what it is.
    #[test]
    fn a_bend_takes_three_sizes() {
        let of = |[a, b]: Numbers| a * (b + 1) * (b + 1) * 4;
        let two = learned(&[2, 4], &[64, 128], of);
        assert!(two.is_guess());
        let three = learned(&[2, 4], &[64, 128, 192], of);
        assert_eq!((three.at([16, 512]), three.kind(1)), (of([16, 512]), LawKind::Parabola));
        let four = learned(&[2, 4], &[64, 128, 192, 256], of);
        assert!(three.is_guess() && !four.is_guess());
    }

    #[test]
    fn padding_is_not_taken_for_a_bend() {
        let of = |[a, b]: Numbers| (a * b * 100).next_multiple_of(2048);
        let law = learned(&[3, 5, 9], &[100, 170, 301], of);
        assert_eq!(law.kind(0), LawKind::Near);
        let error = law.at([20, 500]).abs_diff(of([20, 500]));
        assert!(error * 100 < of([20, 500]), "{error}");
    }

    proptest! {
        #[test]
        fn a_grid_gives_back_what_was_recorded(
            firsts in prop::collection::btree_set(1u64..200, 2..4),
            seconds in prop::collection::btree_set(1u64..5000, 2..4),
            bytes in prop::collection::vec(1u64..1 << 36, 9),
        ) {
            let (firsts, seconds) = (Vec::from_iter(firsts), Vec::from_iter(seconds));
            let sizes = firsts.iter().flat_map(|a| seconds.iter().map(|b| [*a, *b]));
            let points: Vec<Point> = sizes.zip(bytes).collect();
            let law = Law::through(&points).unwrap();
            if law.kind(0) != LawKind::Near {
                for (n, bytes) in &points {
                    prop_assert!(law.at(*n).abs_diff(*bytes) <= bytes / 50 + 1, "{law:?} at {n:?}");
                }
            }
            if points.len() == 4 {
                for (n, bytes) in &points {
                    prop_assert_eq!(law.at(*n), *bytes);
                }
            }
        }

        /// Both numbers alike, and one number where the other does not matter.
        #[test]
        fn two_numbers_are_treated_alike(
            factor in 1u64..1 << 12, more in 0u64..1 << 20, powers in [0u32..3, 0..3],
            a in [1u64..64, 65..128], b in [1u64..2048, 2049..4096],
        ) {
            let terms = [(powers, factor), ([0, 0], more)];
            let law = learned(&a, &b, |n| sum(&terms, n));
            let turned = learned(&b, &a, |[i, j]| sum(&terms, [j, i]));
            for n in [[a[0], b[1]], [40, 3000], [256, 8192]] {
                let bytes = law.at(n);
                // Terabytes have more digits than a double.
                prop_assert!(turned.at([n[1], n[0]]).abs_diff(bytes) <= bytes >> 40);
            }
            prop_assert_eq!(law.kind(0), turned.kind(1));
            if powers[1] == 0 {
                let single: Vec<Point> =
                    a.iter().map(|first| ([*first, 1], sum(&terms, [*first, 1]))).collect();
                let single = Law::through(&single).unwrap();
                if !single.is_guess() {
                    prop_assert_eq!(single.at([64, 1]), law.at([64, 777]));
                    prop_assert_eq!(single.kind(0), law.kind(0));
                }
            }
        }
    }
}

//! How bytes grow with the size if each step draws other data, so that no law goes through all of them.

use super::polynomial::{Exponents, Point};
use super::size::Numbers;

/// The highest power that is tried: attention over a length.
const MAX_DEGREE: u32 = 2;

/// Bytes in proportion to powers of the numbers, with the logarithms of what is left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NearPower {
    pub(super) exponents: Exponents,
    /// The mean logarithm of the bytes at size 1.
    mean: f64,
    /// The sum of the squared deviations from it.
    pub(super) squares: f64,
}

impl NearPower {
    /// The powers from `min_degree` on that leave the smallest deviation, and the lowest of equals; `None` without
    /// points.
    pub(super) fn fit(points: &[Point], min_degree: u32) -> Option<Self> {
        let (first, _) = points.first()?;
        let [first_degrees, second_degrees] = [0, 1].map(|at| {
            let varies = points.iter().any(|(size, _)| size[at] != first[at]);
            if varies { min_degree..=MAX_DEGREE } else { 0..=0 }
        });
        let exponents = first_degrees.flat_map(|i| second_degrees.clone().map(move |j| [i, j]));
        let candidates = exponents.map(|exponents| Self::with_exponents(points, exponents));
        candidates.min_by(|a, b| a.squares.total_cmp(&b.squares))
    }

    /// These powers.
    pub(super) fn with_exponents(points: &[Point], exponents: Exponents) -> Self {
        let rest = points.iter().map(|(size, bytes)| (*bytes).max(1) as f64 / power(exponents, *size));
        let logarithms: Vec<f64> = rest.map(f64::ln).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
        let squares = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
        Self { exponents, mean, squares }
    }

    /// The bytes at `size`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn bytes_at(&self, size: Numbers) -> u64 {
        (self.mean.exp() * power(self.exponents, size)).round() as u64
    }
}

fn power(exponents: Exponents, size: Numbers) -> f64 {
    [0, 1].map(|at| (size[at] as f64).powi(exponents[at].cast_signed())).into_iter().product()
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are positive and small here")]
mod tests {
    use super::*;

    #[test]
    fn noise_does_not_bend_a_power() {
        for (noise, degree) in [([1.0, 1.3, 0.9], 1), ([0.8, 1.2, 1.0], 2), ([1.1, 1.0, 0.9], 0)] {
            let points = [12u64, 20, 32].into_iter().zip(noise);
            let points = points.map(|(size, noise)| ([size, 1], (noise * 1e6 * (size as f64).powi(degree)) as u64));
            let law = NearPower::fit(&points.collect::<Vec<_>>(), 0).unwrap();
            assert_eq!(law.exponents, [degree.cast_unsigned(), 0]);
            let expected = 1e6 * 100f64.powi(degree);
            assert!((0.9..1.1).contains(&(law.bytes_at([100, 1]) as f64 / expected)), "{law:?}");
        }
        assert_eq!(NearPower::fit(&[], 0), None);
    }
}

//! How bytes grow with the size if each step draws other data, so that no law goes through all of them.

use super::polynomial::Point;

/// The highest power that is tried: attention over a length.
const MAX_DEGREE: u32 = 2;

/// Bytes in proportion to a power of the size, with the logarithms of what is left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NearPower {
    pub(super) exponent: u32,
    /// The mean logarithm of the bytes at size 1.
    mean: f64,
    /// The sum of the squared deviations from it.
    pub(super) squares: f64,
}

impl NearPower {
    /// The power that leaves the smallest deviation, and the lowest of equals.
    pub(super) fn fit(points: &[Point]) -> Option<Self> {
        let candidates = (0..=MAX_DEGREE).map(|exponent| Self::with_exponent(points, exponent));
        candidates.min_by(|a, b| a.squares.total_cmp(&b.squares))
    }

    /// This power.
    pub(super) fn with_exponent(points: &[Point], exponent: u32) -> Self {
        let rest = points.iter().map(|(size, bytes)| (*bytes).max(1) as f64 / power(exponent, *size));
        let logarithms: Vec<f64> = rest.map(f64::ln).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
        let squares = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
        Self { exponent, mean, squares }
    }

    /// The bytes at `size`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn bytes_at(&self, size: u64) -> u64 {
        (self.mean.exp() * power(self.exponent, size)).round() as u64
    }
}

fn power(exponent: u32, size: u64) -> f64 {
    (size as f64).powi(exponent.cast_signed())
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are positive and small here")]
mod tests {
    use super::*;

    #[test]
    fn noise_does_not_bend_a_power() {
        for (noise, degree) in [([1.0, 1.3, 0.9], 1), ([0.8, 1.2, 1.0], 2), ([1.1, 1.0, 0.9], 0)] {
            let points = [12u64, 20, 32].into_iter().zip(noise);
            let points = points.map(|(size, noise)| (size, (noise * 1e6 * (size as f64).powi(degree)) as u64));
            let law = NearPower::fit(&points.collect::<Vec<_>>()).unwrap();
            assert_eq!(law.exponent, degree.cast_unsigned());
            let expected = 1e6 * 100f64.powi(degree);
            assert!((0.9..1.1).contains(&(law.bytes_at(100) as f64 / expected)), "{law:?}");
        }
    }
}

//! How much more the requests take whose bytes the data decides.

/// The ratio to the bytes that the recordings predict, at a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DataFactor {
    /// The logarithm of a usual step, relative to the prediction.
    pub(super) logarithm: f64,
    /// Whether it takes less (-1) or more (1) than a usual step.
    pub(super) sign: f64,
    /// By how much, in logarithms.
    pub(super) deviation: f64,
    /// By how much the power of the size may differ.
    pub(super) power: f64,
    /// The geometric mean of the recorded sizes.
    pub(super) mean_size: f64,
}

impl DataFactor {
    /// As much as the recordings predict.
    pub(super) const ONE: Self = Self { logarithm: 0.0, sign: 1.0, deviation: 0.0, power: 0.0, mean_size: 1.0 };

    /// The bytes at `size` of a step that takes this share of the largest one, which is predicted to take `bytes`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn apply(self, bytes: u64, share: f64, size: u64) -> u64 {
        // Both errors are independent.
        let deviation = self.deviation.hypot(self.power * (size as f64 / self.mean_size).ln());
        (bytes as f64 * share * (self.logarithm + self.sign * deviation).exp()).round() as u64
    }
}

//! How much more the requests take whose bytes the data decides.

/// The ratio to what the recordings predict, at a size: `times * (size / mean_size) ^ power`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DataFactor {
    pub(super) times: f64,
    /// The geometric mean of the recorded sizes.
    pub(super) mean_size: f64,
    pub(super) power: f64,
}

impl DataFactor {
    /// As much as the recordings predict.
    pub(super) const ONE: Self = Self { times: 1.0, mean_size: 1.0, power: 0.0 };

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    pub(super) fn apply(self, bytes: u64, size: u64) -> u64 {
        let growth = (size as f64 / self.mean_size).max(1.0).powf(self.power);
        (bytes as f64 * self.times * growth).round() as u64
    }
}

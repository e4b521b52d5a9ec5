//! Arithmetic with byte counts that were rounded when printed.

use crate::base::units::size;

/// A number of bytes with a rounding error. Bytes from a snapshot are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApproxBytes {
    /// The printed number.
    pub bytes: u64,
    /// The true number differs by at most this many bytes.
    pub error: u64,
}

/// The answer to a comparison of rounded amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likelihood {
    /// No, for every number that may have been rounded to the printed one.
    No,
    /// No for the printed numbers, but rounding could change it.
    PerhapsNot,
    /// Yes for the printed numbers, but rounding could change it.
    Perhaps,
    /// Yes, for every number that may have been rounded to the printed one.
    Yes,
}

impl Likelihood {
    /// Whether the answer is yes for the printed numbers.
    pub fn is_likely(self) -> bool {
        matches!(self, Self::Yes | Self::Perhaps)
    }

    /// Whether rounding could change the answer.
    pub fn is_within_rounding(self) -> bool {
        matches!(self, Self::Perhaps | Self::PerhapsNot)
    }
}

impl ApproxBytes {
    /// A number that was not rounded.
    pub fn exact(bytes: u64) -> Self {
        Self { bytes, error: 0 }
    }

    /// The sum; errors add up.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), error: self.error.saturating_add(other.error) }
    }

    /// The difference, at least 0; errors add up.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), error: self.error.saturating_add(other.error) }
    }

    /// Whether `self` is at least `other`.
    pub fn covers(self, other: Self) -> Likelihood {
        let error = self.error.saturating_add(other.error);
        match (self.bytes >= other.bytes, self.bytes.abs_diff(other.bytes) > error) {
            // Equal exact numbers: a difference of 0 is not above an error of 0.
            (true, _) if error == 0 => Likelihood::Yes,
            (true, true) => Likelihood::Yes,
            (false, true) => Likelihood::No,
            (true, false) => Likelihood::Perhaps,
            (false, false) => Likelihood::PerhapsNot,
        }
    }
}

/// Formats for people: "about" if the error affects the digits shown, "at most" if it exceeds the number.
pub fn format_approx(about: ApproxBytes) -> String {
    let ApproxBytes { bytes, error } = about;
    if error >= bytes && error > 0 {
        format!("at most {}", size(bytes.saturating_add(error)))
    } else if error > bytes / 1000 {
        format!("about {}", size(bytes))
    } else {
        size(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(bytes: u64) -> ApproxBytes {
        ApproxBytes { bytes, error: 5 }
    }

    #[test]
    fn comparisons_within_the_error_are_uncertain() {
        assert_eq!(about(1000).covers(about(900)), Likelihood::Yes);
        assert_eq!(about(1000).covers(about(1010)), Likelihood::PerhapsNot);
        assert_eq!(about(1000).covers(about(1020)), Likelihood::No);
        assert_eq!(about(5000).covers(about(5000)), Likelihood::Perhaps);
        assert_eq!(ApproxBytes::exact(512).covers(ApproxBytes::exact(512)), Likelihood::Yes);
        assert_eq!(about(1000).saturating_sub(about(2000)).bytes, 0);
    }

    #[test]
    fn formats_no_digit_that_the_error_covers() {
        for (mib, error, text) in
            [(5000, 1, "4.88 GiB"), (500, 10, "about 500 MiB"), (8, 15, "at most 23 MiB"), (0, 0, "0 B")]
        {
            assert_eq!(format_approx(ApproxBytes { bytes: mib << 20, error: error << 20 }), text);
        }
    }
}

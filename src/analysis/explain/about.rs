//! Arithmetic with numbers that were rounded before they were printed.

use crate::message::Amount;
use crate::units::size;

/// A number of bytes, true to within `error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct About {
    pub(super) bytes: u64,
    pub(super) error: u64,
}

/// Whether one amount is at least another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// The rounding decides; as printed, it is so.
    Perhaps,
    /// The rounding decides; as printed, it is not so.
    PerhapsNot,
}

impl Answer {
    /// As printed.
    pub(super) fn is_yes(self) -> bool {
        matches!(self, Self::Yes | Self::Perhaps)
    }

    /// Whether the rounding may have turned it.
    pub(super) fn is_close(self) -> bool {
        matches!(self, Self::Perhaps | Self::PerhapsNot)
    }
}

impl About {
    pub(super) fn exactly(bytes: u64) -> Self {
        Self { bytes, error: 0 }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            error: self.error.saturating_add(other.error),
        }
    }

    /// Never below nothing.
    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            error: self.error.saturating_add(other.error),
        }
    }

    pub(super) fn covers(self, other: Self) -> Answer {
        let error = self.error.saturating_add(other.error);
        match (self.bytes >= other.bytes, self.bytes.abs_diff(other.bytes) > error) {
            // Numbers printed in full are what they are.
            (true, _) if error == 0 => Answer::Yes,
            (true, true) => Answer::Yes,
            (false, true) => Answer::No,
            (true, false) => Answer::Perhaps,
            (false, false) => Answer::PerhapsNot,
        }
    }
}

impl From<&Amount> for About {
    fn from(amount: &Amount) -> Self {
        Self { bytes: amount.bytes, error: amount.error_bytes }
    }
}

/// A sum or difference of printed numbers, for people: no digit that the rounding makes up.
pub(super) fn rough(about: About) -> String {
    let About { bytes, error } = about;
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

    #[test]
    fn what_lies_within_the_rounding_is_not_decided() {
        let about = |text| About::from(&Amount::at_start(text).unwrap());
        assert_eq!(about("1.00 GiB").covers(about("900.00 MiB")), Answer::Yes);
        assert_eq!(about("1.00 GiB").covers(about("1.01 GiB")), Answer::PerhapsNot);
        assert_eq!(about("1.00 GiB").covers(about("1.02 GiB")), Answer::No);
        assert_eq!(about("5.00 GiB").covers(about("5.00 GiB")), Answer::Perhaps);
        assert_eq!(about("512 bytes").covers(about("512 bytes")), Answer::Yes);
        assert_eq!(about("1.00 GiB").minus(about("2.00 GiB")).bytes, 0);
    }

    #[test]
    fn no_more_is_claimed_than_is_known() {
        let about =
            |bytes: u64, error: u64| rough(About { bytes: bytes << 20, error: error << 20 });
        assert_eq!(about(5000, 1), "4.88 GiB");
        assert_eq!(about(500, 10), "about 500 MiB");
        assert_eq!(about(8, 15), "at most 23 MiB");
        assert_eq!(about(0, 0), "0 B");
    }
}

//! Arithmetic with numbers that were rounded before they were printed.

use crate::base::units::size;

/// A number of bytes, true to within `error`: the figure of a snapshot has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct About {
    /// As printed.
    pub bytes: u64,
    /// The true number is at most so many bytes away.
    pub error: u64,
}

/// Whether one amount is at least another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// It is not.
    No,
    /// The rounding decides; as printed, it is not.
    PerhapsNot,
    /// The rounding decides; as printed, it is.
    Perhaps,
    /// It is.
    Yes,
}

impl Holds {
    /// As printed.
    pub fn is_yes(self) -> bool {
        matches!(self, Self::Yes | Self::Perhaps)
    }

    /// Whether the rounding could change the answer.
    pub fn is_close(self) -> bool {
        matches!(self, Self::Perhaps | Self::PerhapsNot)
    }
}

impl About {
    /// A figure that was not rounded.
    pub fn exactly(bytes: u64) -> Self {
        Self { bytes, error: 0 }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            error: self.error.saturating_add(other.error),
        }
    }

    /// The difference, never below nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            error: self.error.saturating_add(other.error),
        }
    }

    /// Whether it is at least `other`.
    pub fn covers(self, other: Self) -> Holds {
        let error = self.error.saturating_add(other.error);
        match (self.bytes >= other.bytes, self.bytes.abs_diff(other.bytes) > error) {
            // Numbers printed in full are what they are.
            (true, _) if error == 0 => Holds::Yes,
            (true, true) => Holds::Yes,
            (false, true) => Holds::No,
            (true, false) => Holds::Perhaps,
            (false, false) => Holds::PerhapsNot,
        }
    }
}

/// A sum or difference of printed numbers, for people: no digit that the rounding makes up.
pub fn rough(about: About) -> String {
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
        let about = |bytes| About { bytes, error: 5 };
        assert_eq!(about(1000).covers(about(900)), Holds::Yes);
        assert_eq!(about(1000).covers(about(1010)), Holds::PerhapsNot);
        assert_eq!(about(1000).covers(about(1020)), Holds::No);
        assert_eq!(about(5000).covers(about(5000)), Holds::Perhaps);
        assert_eq!(About::exactly(512).covers(About::exactly(512)), Holds::Yes);
        assert_eq!(about(1000).minus(about(2000)).bytes, 0);
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

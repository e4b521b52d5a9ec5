//! The source of figures over a recording, and the reasons why one may be unknown.

use thiserror::Error;

use super::{Amount, MemoryState, Unit};

/// The value of a figure, or why it is unknown.
pub type Reading = Result<Amount, UnknownReason>;

/// Why a figure is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownReason {
    /// The snapshot has no trace.
    #[error("no history was recorded; call torch.cuda.memory._record_memory_history() before the work")]
    NoHistory,
    /// The baseline has no such entry, or the entry no such device.
    #[error("the baseline has no GPU {device} of the entry {entry:?}; --add or --update writes it")]
    NoEntry {
        /// Device index.
        device: u64,
        /// Name of the entry.
        entry: String,
    },
    /// Recorded entries are lost.
    #[error("{why}")]
    HistoryLost {
        /// The evidence.
        why: String,
        /// Lower bound from the remaining entries, if they give one.
        at_least: Option<u64>,
    },
    /// Memory was reserved before the first entry, and nothing shows that this entry is the first recorded one.
    #[error(
        "the recording starts late, and the file does not show whether earlier entries are lost: record with \
         `oomscope run`, which notes the size of the ring, or start before the first use of CUDA; \
         --allow-missing truncated takes the recording as whole"
    )]
    StartsLate {
        /// Lower bound from the recorded entries, if they give one.
        at_least: Option<u64>,
    },
    /// Trace entries contradict each other.
    #[error("the trace contradicts itself: entries are missing or altered")]
    Contradictory {
        /// Lower bound from the remaining entries, if they give one.
        at_least: Option<u64>,
    },
    /// Entries have an action that no known release writes.
    #[error("trace entries have an unknown action, which may be one that matters here, such as a failed request")]
    UnknownAction {
        /// Lower bound from the other entries, if they give one.
        at_least: Option<u64>,
    },
    /// The baseline has a device that the checked snapshots lack.
    #[error(
        "the baseline has GPU {device} of {snapshot}, which is not among the checked snapshots: a rank that died \
         leaves no file"
    )]
    MissingSnapshot {
        /// Device index.
        device: u64,
        /// Name of the snapshot in the baseline.
        snapshot: String,
    },
    /// The ratio to a baseline of 0 is undefined.
    #[error("the peak of the baseline is 0")]
    BaselineIsZero,
}

impl UnknownReason {
    /// The lower bound on the figure, as an amount of `unit`.
    pub fn lower_bound(&self, unit: Unit) -> Option<Amount> {
        let (Self::HistoryLost { at_least, .. }
        | Self::StartsLate { at_least }
        | Self::Contradictory { at_least }
        | Self::UnknownAction { at_least }) = self
        else {
            return None; // no other reason gives a bound
        };
        let seen = at_least.as_ref()?;
        match unit {
            Unit::Ratio => None,
            Unit::Bytes => Some(Amount::Bytes((*seen).into())),
            Unit::Count => Some(Amount::Count((*seen).into())),
        }
    }
}

/// A device that figures are read from. Each quantity is computed only if a figure needs it. The default
/// implementations report that no history was recorded.
pub trait FigureSource {
    /// The memory at the studied position.
    fn state(&self) -> MemoryState;

    /// Peak reserved bytes.
    fn peak_reserved(&self) -> Result<u64, UnknownReason> {
        Err(UnknownReason::NoHistory)
    }

    /// Peak allocated bytes.
    fn peak_allocated(&self) -> Result<u64, UnknownReason> {
        Err(UnknownReason::NoHistory)
    }

    /// Number of failed requests.
    fn failed_requests(&self) -> Result<u64, UnknownReason> {
        Err(UnknownReason::NoHistory)
    }

    /// Growth per training step in bytes; 0 if nothing grows.
    fn step_growth(&self) -> Result<u64, UnknownReason> {
        Err(UnknownReason::NoHistory)
    }

    /// The peaks of allocated and of reserved bytes, replayed from an empty pool: each in the baseline and now.
    fn replayed_peaks(&self) -> Result<[[u64; 2]; 2], UnknownReason> {
        Err(UnknownReason::NoHistory)
    }
}

impl FigureSource for MemoryState {
    fn state(&self) -> MemoryState {
        *self
    }
}

/// Growth of a peak over the baseline in bytes; negative if it shrank.
pub(super) fn growth([before, now]: [u64; 2]) -> i128 {
    i128::from(now) - i128::from(before)
}

/// Growth of a peak relative to the baseline.
pub(super) fn growth_ratio(peaks: [u64; 2]) -> Result<f64, UnknownReason> {
    let [before, _] = peaks;
    match growth(peaks) {
        grown if before == 0 && grown > 0 => Err(UnknownReason::BaselineIsZero),
        _ if before == 0 => Ok(0.0),
        grown => Ok(grown as f64 / before as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_from_nothing_has_no_ratio() {
        assert_eq!(growth_ratio([0, 1]), Err(UnknownReason::BaselineIsZero));
        assert_eq!([[0, 0], [4, 4], [4, 5], [4, 1]].map(growth_ratio), [Ok(0.0), Ok(0.0), Ok(0.25), Ok(-0.75)]);
    }
}

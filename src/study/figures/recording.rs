//! What figures of a recorded time are read from, and why one cannot be known.

use thiserror::Error;

use super::{Amount, MemoryState, Unit};

/// A figure; or why it cannot be known.
pub type Reading = Result<Amount, WhyUnknown>;

/// Why a figure cannot be known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WhyUnknown {
    /// There is no trace.
    #[error(
        "no history was recorded; call torch.cuda.memory._record_memory_history() before the work"
    )]
    NoHistory,
    /// The model does not reproduce the trace.
    #[error("the model diverges from the recording at entry {entry}: see `oomscope replay`")]
    Diverges {
        /// The first entry that differs.
        entry: u64,
    },
    /// The baseline has no such device.
    #[error(
        "the baseline has no device {device} of {snapshot}; save it again with --save-baseline"
    )]
    NotInBaseline {
        /// The device.
        device: u64,
        /// What the snapshot is called in baselines.
        snapshot: String,
    },
    /// Entries were recorded and are lost.
    #[error("{why}")]
    HistoryLost {
        /// How that shows.
        why: String,
        /// What is there shows that it is at least this, where it shows that.
        at_least: Option<u64>,
    },
    /// Entries contradict each other.
    #[error("the trace contradicts itself: entries are missing, or are not what was recorded")]
    Contradictory {
        /// As above.
        at_least: Option<u64>,
    },
    /// The baseline has a snapshot or a device that was not given.
    #[error(
        "the baseline has device {device} of {snapshot}, and it is not among what is checked: a rank that died \
         leaves no file"
    )]
    NotChecked {
        /// The device.
        device: u64,
        /// What the snapshot is called in the baseline.
        snapshot: String,
    },
    /// A ratio to nothing.
    #[error("the peak of the baseline is 0")]
    BaselineIsZero,
}

impl WhyUnknown {
    /// What is there shows that the figure is at least this, of a unit.
    pub fn at_least(&self, unit: Unit) -> Option<Amount> {
        let (Self::HistoryLost { at_least, .. } | Self::Contradictory { at_least }) = self else {
            return None;
        };
        let seen = at_least.as_ref()?;
        match unit {
            Unit::Ratio => None,
            Unit::Bytes => Some(Amount::Bytes((*seen).into())),
            Unit::Count => Some(Amount::Count((*seen).into())),
        }
    }
}

/// A device that figures are read from. Each quantity is worked out only when a figure asks for it; what an
/// implementation leaves out is unknown.
pub trait FigureSource {
    /// Its memory at the moment looked at.
    fn state(&self) -> MemoryState;

    /// The most that was reserved, in bytes.
    fn peak_reserved(&self) -> Result<u64, WhyUnknown> {
        Err(WhyUnknown::NoHistory)
    }

    /// The most that was allocated, in bytes.
    fn peak_allocated(&self) -> Result<u64, WhyUnknown> {
        Err(WhyUnknown::NoHistory)
    }

    /// Requests that failed.
    fn failed_requests(&self) -> Result<u64, WhyUnknown> {
        Err(WhyUnknown::NoHistory)
    }

    /// Requests before which everything cached was given back (`num_alloc_retries`).
    fn retries(&self) -> Result<u64, WhyUnknown> {
        Err(WhyUnknown::NoHistory)
    }

    /// The peak of allocated memory replayed from an empty pool: of the baseline, and now.
    fn replayed_peak_allocated(&self) -> Result<[u64; 2], WhyUnknown> {
        Err(WhyUnknown::NoHistory)
    }

    /// The peak of reserved memory replayed from an empty pool: of the baseline, and now.
    fn replayed_peak_reserved(&self) -> Result<[u64; 2], WhyUnknown> {
        Err(WhyUnknown::NoHistory)
    }
}

/// By how many bytes a peak grew over the baseline's; below 0 where it shrank.
pub(super) fn growth([before, now]: [u64; 2]) -> i128 {
    i128::from(now) - i128::from(before)
}

/// The growth of a peak relative to the baseline's.
pub(super) fn growth_ratio(peaks: [u64; 2]) -> Result<f64, WhyUnknown> {
    let [before, _] = peaks;
    match growth(peaks) {
        grown if before == 0 && grown > 0 => Err(WhyUnknown::BaselineIsZero),
        _ if before == 0 => Ok(0.0),
        grown => Ok(grown as f64 / before as f64),
    }
}

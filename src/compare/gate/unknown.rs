//! Why a figure is unknown.

use thiserror::Error;

use crate::base::warning::Code;
use crate::study::figures::{Amount, Unit};

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
    /// Part of the recording is or may be lost, or it contradicts itself.
    #[error("{why}")]
    Incomplete {
        /// The warning about it.
        code: Code,
        /// The evidence.
        why: String,
        /// Lower bound from the recorded entries, if they give one.
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
    /// The warning code.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::NoHistory => Code::NoTrace,
            Self::Incomplete { code, .. } => *code,
            Self::NoEntry { .. } | Self::BaselineIsZero => Code::NotInBaseline,
            Self::MissingSnapshot { .. } => Code::NotChecked,
        }
    }

    /// The lower bound on the figure, as an amount of `unit`.
    pub(super) fn lower_bound(&self, unit: Unit) -> Option<Amount> {
        let Self::Incomplete { at_least: Some(seen), .. } = *self else { return None }; // no other reason gives a bound
        match unit {
            Unit::Ratio => None,
            Unit::Bytes => Some(Amount::Bytes(seen.into())),
            Unit::Count => Some(Amount::Count(seen.into())),
        }
    }
}

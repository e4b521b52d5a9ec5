//! Detects that the trace lacks entries that were recorded: the ring of `max_entries` keeps only the last ones.

use std::fmt;

use crate::base::intern::SeededSet;
use crate::base::units::{count, counted};
use crate::base::warning::RECORD_HISTORY_CALL;
use crate::replay::literal::LiteralOutcome;
use crate::snapshot::{Action, BlockState, Device, Stacks};

/// Minimum length that is taken for a full ring. Shorter traces have round lengths by chance.
const MIN_RING_ENTRIES: usize = 100;

/// Evidence that entries before the first one were recorded and lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostHistory {
    /// One entry: the legacy call `_record_memory_history(True)`, or `max_entries=1`.
    RingOfOne,
    /// Memory is reserved at the start, and the length is a typical `max_entries`.
    RingFull(usize),
    /// Number of final blocks with a recorded stack but without their allocation in the trace.
    MissingAllocations(u64),
}

impl LostHistory {
    pub(super) fn from_replay(device: Device<'_>, outcome: LiteralOutcome) -> Option<Self> {
        let entries = device.len();
        let ring = device.snapshot().recorder_info.as_ref().and_then(|info| info.max_entries);
        if entries == 1 && ring.is_none_or(|ring| ring == 1) {
            return Some(Self::RingOfOne);
        }
        if outcome.initial_totals.reserved == 0 {
            return None;
        }
        if ring.map_or_else(|| is_typical_ring_size(entries), |ring| entries as u64 >= ring) {
            return Some(Self::RingFull(entries));
        }
        let missing = missing_allocations(device);
        (missing > 0).then_some(Self::MissingAllocations(missing))
    }
}

/// Whether the file shows that no entry was recorded before its first one.
///
/// No field of a snapshot says how many entries were recorded, and a full ring looks like the trace of a recording that
/// started late: people choose rings of any size. Three things show that nothing is lost: a trace that starts with an
/// empty allocator, a ring larger than the trace, and a longer trace of another device, since PyTorch gives the rings of
/// all devices the same size.
pub(super) fn is_start_shown(device: Device<'_>, outcome: LiteralOutcome) -> bool {
    let snapshot = device.snapshot();
    let ring = snapshot.recorder_info.as_ref().and_then(|info| info.max_entries);
    outcome.initial_totals.reserved == 0
        || ring.is_some_and(|ring| (device.len() as u64) < ring)
        || snapshot.traces.iter().any(|rows| rows.len() > device.len())
}

/// Number of final blocks with a recorded stack whose allocation is not in the trace.
fn missing_allocations(device: Device<'_>) -> u64 {
    let in_use = device.blocks().filter(|block| block.state != BlockState::Inactive);
    let mut missing: SeededSet<u64> =
        in_use.filter(|block| block.stack != Stacks::EMPTY).map(|block| block.address).collect();
    for (_, entry) in device.entries_where(|action| action == Action::Alloc) {
        missing.remove(&entry.addr);
    }
    missing.len() as u64
}

/// Whether people choose `entries` as a ring size: a digit followed by zeros, thousands, or a power of two.
fn is_typical_ring_size(entries: usize) -> bool {
    let mut digits = entries;
    while digits > 0 && digits.is_multiple_of(10) {
        digits /= 10;
    }
    let is_short = digits < 10 || entries.is_multiple_of(1000) || entries.is_multiple_of(1024);
    entries >= MIN_RING_ENTRIES && (is_short || entries.is_power_of_two())
}

impl fmt::Display for LostHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RingOfOne => write!(
                f,
                "the trace has one entry, which is all that _record_memory_history(True) and max_entries=1 keep: \
                 call {RECORD_HISTORY_CALL} instead"
            ),
            Self::RingFull(entries) => write!(
                f,
                "the ring is full: only the last {} entries are left; set a larger max_entries",
                count(entries as u64)
            ),
            Self::MissingAllocations(blocks) => write!(
                f,
                "entries are lost: the trace lacks the allocation of {} with a recorded stack (the ring of max_entries \
                 wrapped, or the recording was restarted); set a larger max_entries",
                counted(blocks, "block")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_typical_ring_size;

    #[test]
    fn recognizes_typical_ring_sizes() {
        for round in [100, 300, 10_000, 25_000, 100_000, 1_000_000, 65_536, 131_072, 10_240, 128] {
            assert!(is_typical_ring_size(round), "{round}");
        }
        for other in [2, 10, 64, 99, 110, 4830, 5112, 18_474, 9999, 10_001] {
            assert!(!is_typical_ring_size(other), "{other}");
        }
    }
}

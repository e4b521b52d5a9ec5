//! Whether a trace lacks entries that were recorded: a ring of `max_entries` keeps the last ones.

use std::fmt;

use crate::base::intern::SeededSet;
use crate::base::units::{count, counted};
use crate::base::warning::RECORD_HISTORY_CALL;
use crate::replay::literal::LiteralOutcome;
use crate::snapshot::{Action, BlockState, Device, Stacks};

/// Fewest entries that are taken for a full ring: below, round numbers come about by chance.
const MIN_RING_ENTRIES: usize = 100;

/// How it shows that the history before the first entry was recorded and is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostHistory {
    /// There is one entry: what the legacy call keeps, and `max_entries=1`.
    RingOfOne,
    /// The trace begins late and has as many entries as people give to rings.
    RingFull(usize),
    /// So many blocks have a stack, and the entry that allocated them is gone.
    MissingAllocations(u64),
}

impl LostHistory {
    /// Of the trace of `device`, whose replay came to `outcome`.
    pub(super) fn from_replay(device: Device<'_>, outcome: LiteralOutcome) -> Option<Self> {
        let entries = device.len();
        let ring = device.snapshot().recorded.as_ref().and_then(|recorded| recorded.max_entries);
        if entries == 1 && ring.is_none_or(|ring| ring == 1) {
            return Some(Self::RingOfOne);
        }
        if outcome.initial_totals.reserved == 0 {
            return None;
        }
        if ring.map_or_else(|| is_typical_ring_size(entries), |ring| entries as u64 >= ring) {
            return Some(Self::RingFull(entries));
        }
        let recorded = missing_allocations(device);
        (recorded > 0).then_some(Self::MissingAllocations(recorded))
    }
}

/// Blocks of the snapshot whose stack was recorded and whose allocation is not in the trace: it was once.
fn missing_allocations(device: Device<'_>) -> u64 {
    let in_use = device.blocks().filter(|block| block.state != BlockState::Inactive);
    let mut recorded: SeededSet<u64> =
        in_use.filter(|block| block.stack != Stacks::EMPTY).map(|block| block.address).collect();
    for (_, entry) in device.entries_where(|action| action == Action::Alloc) {
        recorded.remove(&entry.addr);
    }
    recorded.len() as u64
}

/// Whether `entries` is a number that people write: one digit and noughts, thousands, or a power of two.
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
                 write {RECORD_HISTORY_CALL} instead"
            ),
            Self::RingFull(entries) => write!(
                f,
                "the ring is full: of all that was recorded the last {} entries are left; give a larger max_entries",
                count(entries as u64)
            ),
            Self::MissingAllocations(blocks) => write!(
                f,
                "entries are lost: {} with a recorded stack, whose allocation is not in the trace (the ring of \
                 max_entries is full, or the recording was begun anew); give a larger max_entries",
                if blocks == 1 {
                    "there is 1 block".to_owned()
                } else {
                    format!("there are {}", counted(blocks, "block"))
                }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_typical_ring_size;

    #[test]
    fn numbers_that_people_write_are_round() {
        for round in [100, 300, 10_000, 25_000, 100_000, 1_000_000, 65_536, 131_072, 10_240, 128] {
            assert!(is_typical_ring_size(round), "{round}");
        }
        for other in [2, 10, 64, 99, 110, 4830, 5112, 18_474, 9999, 10_001] {
            assert!(!is_typical_ring_size(other), "{other}");
        }
    }
}

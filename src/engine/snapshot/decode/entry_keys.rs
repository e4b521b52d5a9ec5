//! The keys of trace entries, and where the values of each are.

use super::super::keys;
use crate::base::ids::SymbolId;

/// The keys of a trace entry, in its order.
#[derive(Debug)]
pub(super) struct EntryKeys {
    pub(super) keys: Vec<SymbolId>,
    /// `None` if a key is rare or occurs twice.
    pub(super) positions: Option<Positions>,
}

/// The position of each value among those of the entry; [`ABSENT`] if the entry lacks it.
#[derive(Debug)]
pub(super) struct Positions {
    pub(super) addr: u8,
    pub(super) size: u8,
    pub(super) stream: u8,
    pub(super) time_us: u8,
    pub(super) frames: u8,
    pub(super) pool: u8,
    pub(super) compile_context: u8,
    pub(super) user_metadata: u8,
}

/// Beyond the values of every entry.
const ABSENT: u8 = u8::MAX;

impl EntryKeys {
    /// `keys` begin with that of the action.
    pub(super) fn new(keys: Vec<SymbolId>) -> Self {
        let positions = Positions::from_keys(&keys);
        Self { keys, positions }
    }
}

impl Positions {
    /// The positions of `keys`, of which the first is the action.
    fn from_keys(keys: &[SymbolId]) -> Option<Self> {
        let mut positions = Self {
            addr: ABSENT,
            size: ABSENT,
            stream: ABSENT,
            time_us: ABSENT,
            frames: ABSENT,
            pool: ABSENT,
            compile_context: ABSENT,
            user_metadata: ABSENT,
        };
        for (position, key) in (0..ABSENT).zip(keys).skip(1) {
            let place = match *key {
                keys::ADDR | keys::DEVICE_FREE => &mut positions.addr,
                keys::SIZE => &mut positions.size,
                keys::STREAM => &mut positions.stream,
                keys::TIME_US => &mut positions.time_us,
                keys::FRAMES => &mut positions.frames,
                keys::POOL_ID => &mut positions.pool,
                keys::COMPILE_CONTEXT => &mut positions.compile_context,
                keys::USER_METADATA => &mut positions.user_metadata,
                _ => return None,
            };
            if std::mem::replace(place, position) != ABSENT {
                return None;
            }
        }
        Some(positions)
    }
}

//! What a replay takes for granted that the snapshot may not say.

use crate::conf::Settings;
use crate::ids::PoolId;

/// One way in which the recorded run may have been set up.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The minor release of PyTorch 2.
    pub minor: u32,
    /// The allocator's settings.
    pub settings: Settings,
    /// The most the process was allowed to reserve, in bytes.
    pub limit: Option<u64>,
    /// Bytes of the device, if known.
    pub capacity: Option<u64>,
    /// Private pools whose blocks are handed out whole (`MemPool(no_split=True)`).
    pub no_split: Vec<PoolId>,
    /// Whether a request for a private pool that may have been made in a graph capture or in
    /// `use_mem_pool` is taken for one of a capture: see
    /// [`crate::calls::Program::leaves_captures_open`].
    pub captures: bool,
}

impl Hypothesis {
    /// The limit that the settings themselves set, where the device is known.
    pub fn recorded_limit(&self) -> Option<u64> {
        let fraction = self.settings.per_process_memory_fraction;
        let capacity = self.capacity.filter(|_| fraction < 1.0)?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, as meant"
        )]
        let limit = (capacity as f64 * fraction).round() as u64;
        Some(limit)
    }
}

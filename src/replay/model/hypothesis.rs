//! What a replay takes for granted that the snapshot may not say.

use crate::allocator::conf::Settings;
use crate::base::ids::PoolId;
use crate::replay::literal::SettingsChange;

/// One way in which the recorded run may have been set up.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The minor release of PyTorch 2.
    pub minor: u32,
    /// The allocator's settings at the first entry.
    pub settings: Settings,
    /// What they were changed to at run time, in order; most programs change nothing.
    pub settings_changes: Vec<SettingsChange>,
    /// The most the process was allowed to reserve, in bytes.
    pub limit: Option<u64>,
    /// Bytes of the device, if known.
    pub capacity: Option<u64>,
    /// Private pools whose blocks are handed out whole (`MemPool(no_split=True)`).
    pub no_split: Vec<PoolId>,
    /// Whether a request for a private pool that may have been made in a graph capture or in
    /// `use_mem_pool` is taken for one of a capture: see
    /// [`crate::replay::calls::Program::leaves_captures_open`].
    pub assumes_captures: bool,
}

impl Hypothesis {
    /// The settings at the last entry.
    pub fn last_settings(&self) -> &Settings {
        self.settings_changes.last().map_or(&self.settings, |later| &later.settings)
    }

    /// The settings of a call whose last entry is `entry`.
    pub fn settings_at(&self, entry: usize) -> &Settings {
        let after = self.settings_changes.partition_point(|later| later.first_entry <= entry);
        let last = after.checked_sub(1).and_then(|at| self.settings_changes.get(at));
        last.map_or(&self.settings, |later| &later.settings)
    }

    /// The settings, where they do not change; else such as need no more memory than any of them: with
    /// which nothing is rounded, and segments are expandable if they ever are.
    pub fn least_demanding_settings(&self) -> Settings {
        let mut mildest = self.settings.clone();
        if !self.settings_changes.is_empty() {
            mildest.roundup_power2_divisions = [0; 16];
            mildest.expandable_segments |=
                self.settings_changes.iter().any(|later| later.settings.expandable_segments);
        }
        mildest
    }

    /// The limit that the settings themselves set, where the device is known.
    pub fn limit_from_settings(&self) -> Option<u64> {
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

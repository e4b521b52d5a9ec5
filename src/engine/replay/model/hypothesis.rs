//! The assumptions of a model replay that the snapshot may not record.

use crate::allocator::conf::Settings;
use crate::allocator::{Behaviour, CachingAllocator};
use crate::base::ids::PoolId;
use crate::replay::literal::SettingsChange;

/// Replaces a garbage collection threshold that is not recorded. It is so small that its limit refuses nothing.
pub(super) const INFERRED_THRESHOLD: f64 = 1.0 / (1_u64 << INFERRED_THRESHOLD_BITS) as f64;
/// The negative binary logarithm of [`INFERRED_THRESHOLD`].
pub(super) const INFERRED_THRESHOLD_BITS: u32 = 20;

/// One possible setup of the recorded run.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The minor release of PyTorch 2.
    pub minor: u32,
    /// The allocator's settings at the first entry.
    pub settings: Settings,
    /// Changes at run time, in order of entries; most programs have none.
    pub settings_changes: Vec<SettingsChange>,
    /// Limit of the process, in bytes of reserved memory.
    pub limit: Option<u64>,
    /// Total bytes of the device, if known.
    pub capacity: Option<u64>,
    /// Private pools that never split blocks (`MemPool(no_split=True)`).
    pub no_split: Vec<PoolId>,
    /// Whether requests for a private pool, made in a graph capture or in `use_mem_pool`, are assumed to be in a
    /// capture: see [`crate::replay::ops::Program::has_unknown_captures`].
    pub assumes_captures: bool,
}

impl Hypothesis {
    /// The allocator before the first entry, without memory, under `settings`.
    pub(super) fn allocator(&self, settings: Settings) -> CachingAllocator {
        let mut allocator = CachingAllocator::new(Behaviour::for_release(self.minor), settings, self.limit);
        for pool in &self.no_split {
            allocator.set_no_split(*pool);
        }
        allocator
    }

    pub fn last_settings(&self) -> &Settings {
        self.settings_changes.last().map_or(&self.settings, |change| &change.settings)
    }

    /// The settings of an operation whose last entry is `entry_index`.
    pub fn settings_at(&self, entry_index: usize) -> &Settings {
        let after = self.settings_changes.partition_point(|change| change.first_entry <= entry_index);
        let last = after.checked_sub(1).and_then(|at| self.settings_changes.get(at));
        last.map_or(&self.settings, |change| &change.settings)
    }

    /// The settings if they do not change. Otherwise settings that need no more memory than any of them: without
    /// rounding, and with expandable segments if any of them has them.
    pub fn lenient_settings(&self) -> Settings {
        let mut settings = self.settings.clone();
        if !self.settings_changes.is_empty() {
            settings.roundup_power2_divisions = [0; 16];
            settings.expandable_segments |=
                self.settings_changes.iter().any(|change| change.settings.expandable_segments);
        }
        settings
    }

    /// Reserved bytes at which garbage collection starts, if neither its threshold nor the limit is recorded. `limit` is
    /// then only a multiple of this.
    pub fn inferred_collection_trigger(&self) -> Option<u64> {
        let limit = self.limit.filter(|_| self.settings.garbage_collection_threshold == INFERRED_THRESHOLD)?;
        Some(limit >> INFERRED_THRESHOLD_BITS)
    }

    /// The limit that `per_process_memory_fraction` sets, if the size of the device is known.
    pub fn limit_from_settings(&self) -> Option<u64> {
        let fraction = self.settings.per_process_memory_fraction;
        let capacity = self.capacity.filter(|_| fraction < 1.0)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is intended")]
        let limit = (capacity as f64 * fraction).round() as u64;
        Some(limit)
    }
}

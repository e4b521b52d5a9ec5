//! The trace of one device, applied entry by entry.

use super::completions::lacks_completions;
use super::initial_state::InitialState;
use super::pool_index::PoolIndex;
use super::segment_pools::{SegmentPools, no_split_pools};
use super::tiling::{Tiling, Tracking};
use super::totals::Totals;
use crate::allocator::conf::Settings;
use crate::base::ids::PoolId;
use crate::snapshot::{Action, Device, Pools, TraceEntry};

/// A device's trace, to be applied as recorded.
#[derive(Debug, Clone, Copy)]
pub struct LiteralReplay<'a> {
    pub device: Device<'a>,
    /// The settings at the first entry.
    pub settings: &'a Settings,
    /// In order of entries.
    pub settings_changes: &'a [SettingsChange],
}

/// Settings that the program changed at run time.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsChange {
    /// The first entry of the first operation under these settings.
    pub first_entry: usize,
    /// All settings in effect, not only those that changed.
    pub settings: Settings,
}

/// The state of the replay before the first entry, or after an entry.
#[derive(Debug)]
pub struct ReplayStep<'a> {
    /// The index of the entry and its action; `None` before the first. Most observers need no more of an entry.
    pub at: Option<(usize, Action)>,
    /// The private pool of a failed request, if that is not recorded but can be inferred.
    pub failure_pool: Option<PoolId>,
    pub tiling: &'a Tiling,
    /// See `Outcome::lacks_completions`.
    pub lacks_completions: bool,
}

/// The result of a literal replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteralOutcome {
    /// Before the first entry; all 0 if the recording began with an empty allocator.
    pub initial_totals: Totals,
    /// Number of entries, and of parts of the initial state, that contradict what came before.
    pub contradictions: u64,
    pub first_contradiction: Option<usize>,
    /// Number of blocks that differ in size or state between the snapshot and the end of the replay, or that only one
    /// of them has.
    pub end_differences: u64,
    /// The trace has no `free_completed` entries. The replay then completes each free at once, although another stream
    /// may still have used the block.
    pub lacks_completions: bool,
}

impl LiteralOutcome {
    /// Whether entries contradict each other or the snapshot.
    pub fn is_inconsistent(&self) -> bool {
        self.contradictions > 0 || self.end_differences > 0
    }
}

impl LiteralReplay<'_> {
    /// Applies the trace. `observe` sees the state before the first entry and after every entry, with what the
    /// [`Tiling`] keeps for `tracking`.
    pub fn run(&self, tracking: Tracking, mut observe: impl FnMut(&ReplayStep<'_>)) -> LiteralOutcome {
        let mut tiling = Tiling::new(self.settings.clone(), tracking);
        tiling.no_split = no_split_pools(self.device, self.settings);
        let pools = PoolIndex::from_device(self.device);
        let initial_state = InitialState::from_trace(self.device, self.settings, &pools);
        let mut contradictions = initial_state.place_in(&mut tiling);
        drop(initial_state); // as large as the live blocks
        let initial_totals = tiling.totals();
        let mut first_contradiction = None;
        let mut failure_pools = None;
        let lacks_completions = lacks_completions(self.device);
        let device = self.device;
        let mut settings_changes = self.settings_changes;
        let (mut at, mut failure_pool) = (None, None);
        for index in 0..=device.len() {
            // The only call, so that it is inlined.
            observe(&ReplayStep { at, failure_pool, tiling: &tiling, lacks_completions });
            let Some(recorded) = device.action(index) else { break };
            (at, failure_pool) = (Some((index, recorded)), None);
            while let [change, later @ ..] = settings_changes
                && change.first_entry <= index
            {
                tiling.set_settings(&change.settings);
                settings_changes = later;
            }
            let action = match recorded {
                Action::FreeRequested if lacks_completions => Action::FreeCompleted,
                action => action,
            };
            tiling.start_entry();
            if !apply_entry(device, index, action, &mut tiling, &pools) {
                contradictions += 1;
                first_contradiction = first_contradiction.or(Some(index));
            }
            if action == Action::Oom && device.entry(index).pool.is_none() {
                let pools = failure_pools.get_or_insert_with(|| SegmentPools::new(device));
                failure_pool = Some(pools.pool_of(&device.entry(index))).filter(|pool| *pool != Pools::DEFAULT);
            }
        }
        let end_differences = self.count_end_differences(&tiling);
        LiteralOutcome { initial_totals, contradictions, first_contradiction, end_differences, lacks_completions }
    }

    fn count_end_differences(&self, tiling: &Tiling) -> u64 {
        let (mut blocks, mut matched) = (0u64, 0u64);
        for block in self.device.blocks() {
            blocks += 1;
            matched += u64::from(tiling.block_at(block.address) == Some((block.size, block.state)));
        }
        (blocks - matched) + (tiling.len() as u64).saturating_sub(matched)
    }
}

/// Applies entry `index` as `action`; false if it contradicts the state. Each action reads only what it needs.
#[expect(clippy::inline_always, reason = "called for every entry, from one place")]
#[inline(always)]
fn apply_entry(device: Device<'_>, index: usize, action: Action, tiling: &mut Tiling, pools: &PoolIndex) -> bool {
    match action {
        Action::Alloc => {
            let TraceEntry { addr, size, extended_stack, stream, .. } = device.entry(index);
            tiling.alloc(addr, size, extended_stack, stream)
        }
        Action::FreeRequested => tiling.free_requested(device.entry(index).addr),
        Action::FreeCompleted => tiling.free_completed(device.entry(index).addr),
        Action::SegmentAlloc | Action::SegmentMap => tiling.add_range(pools.added_range(index, &device.entry(index))),
        Action::SegmentFree => tiling.free_segment(device.entry(index).addr),
        Action::SegmentUnmap => tiling.unmap(device.entry(index).addr, device.entry(index).size),
        Action::Snapshot | Action::Oom | Action::Other => Ok(()),
    }
    .is_ok()
}

//! The trace of one device, applied entry by entry.

use super::completions::lacks_completions;
use super::pool_index::PoolIndex;
use super::segment_pools::{SegmentPools, no_split_pools};
use super::initial_state::InitialState;
use super::tiling::{Tracking, Tiling};
use super::totals::Totals;
use crate::allocator::conf::Settings;
use crate::snapshot::{Action, Device, Pools, TraceEntry};

/// One device's trace, to be replayed as recorded.
#[derive(Debug, Clone, Copy)]
pub struct LiteralReplay<'a> {
    /// Whose trace.
    pub device: Device<'a>,
    /// The settings it was recorded under.
    pub settings: &'a Settings,
    /// Others that the program put into effect as it ran, each from an entry on, in order.
    pub settings_changes: &'a [SettingsChange],
}

/// Settings that the program put into effect as it ran.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsChange {
    /// Index of the first entry of the first call that is made under them.
    pub first_entry: usize,
    /// All settings in effect from there.
    pub settings: Settings,
}

/// A moment of the replay: the start, or just after an entry.
#[derive(Debug)]
pub struct ReplayStep<'a> {
    /// The entry, with its index in the device's trace; `None` at the start. A failed request has its
    /// private pool, where that can be told.
    pub entry: Option<(usize, TraceEntry)>,
    /// The memory after it.
    pub tiling: &'a Tiling,
    /// See [`Outcome::lacks_completions`].
    pub lacks_completions: bool,
}

/// What a replay found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteralOutcome {
    /// The sums before the first entry; all 0 when the recording began at an empty allocator.
    pub initial_totals: Totals,
    /// Entries (and parts of the start) that did not fit what came before.
    pub contradictions: u64,
    /// The first such entry.
    pub first_contradiction: Option<usize>,
    /// Blocks of the snapshot that differ, in size or state, from what the trace led to, and blocks
    /// that only one of the two has.
    pub end_differences: u64,
    /// Whether entries of completed frees were left out (`skip_actions`): every block is then taken to be
    /// free as soon as the program freed it, though another stream may still have used it.
    pub lacks_completions: bool,
}

impl LiteralOutcome {
    /// Whether entries do not fit those before, or the state at the end.
    pub fn is_inconsistent(&self) -> bool {
        self.contradictions > 0 || self.end_differences > 0
    }
}

impl LiteralReplay<'_> {
    /// Replays the trace; `observe` sees the start and every entry. `keep` says what the [`Tiling`] has
    /// at hand of free blocks.
    pub fn run(&self, keep: Tracking, mut observe: impl FnMut(&ReplayStep<'_>)) -> LiteralOutcome {
        let mut tiling = Tiling::new(self.settings.clone(), keep);
        tiling.set_no_split_pools(no_split_pools(self.device, self.settings));
        let pools = PoolIndex::from_device(self.device);
        let start = InitialState::from_trace(self.device, self.settings, &pools);
        let mut contradictions = start.place_in(&mut tiling);
        drop(start);
        let start = tiling.totals();
        let mut first_contradiction = None;
        let mut of_failures = None;
        let lacks_completions = lacks_completions(self.device);
        observe(&ReplayStep { entry: None, tiling: &tiling, lacks_completions });
        let mut later = self.settings_changes.iter().peekable();
        for (index, mut event) in self.device.entries().enumerate() {
            while let Some(changed) = later.next_if(|later| later.first_entry <= index) {
                tiling.set_settings(&changed.settings);
            }
            let mut applied = event;
            if lacks_completions && event.action == Action::FreeRequested {
                applied.action = Action::FreeCompleted;
            }
            tiling.clear_changes();
            if !apply_entry(index, &applied, &mut tiling, &pools) {
                contradictions += 1;
                first_contradiction = first_contradiction.or(Some(index));
            }
            if event.action == Action::Oom && event.pool.is_none() {
                let pools = of_failures.get_or_insert_with(|| SegmentPools::new(self.device));
                event.pool = Some(pools.pool_of(&event)).filter(|pool| *pool != Pools::DEFAULT);
            }
            observe(&ReplayStep { entry: Some((index, event)), tiling: &tiling, lacks_completions });
        }
        let end_differences = self.count_end_differences(&tiling);
        LiteralOutcome { initial_totals: start, contradictions, first_contradiction, end_differences, lacks_completions }
    }

    fn count_end_differences(&self, tiling: &Tiling) -> u64 {
        let (mut blocks, mut same) = (0u64, 0u64);
        for block in self.device.blocks() {
            blocks += 1;
            same += u64::from(tiling.block_at(block.address) == Some((block.size, block.state)));
        }
        (blocks - same) + (tiling.len() as u64).saturating_sub(same)
    }
}

/// Applies one entry; says whether it fitted.
#[inline]
fn apply_entry(row: usize, event: &TraceEntry, tiling: &mut Tiling, pools: &PoolIndex) -> bool {
    match event.action {
        Action::Alloc => tiling.alloc(event.addr, event.size, event.made_by, event.stream),
        Action::FreeRequested => tiling.free_requested(event.addr),
        Action::FreeCompleted => tiling.free_completed(event.addr),
        Action::SegmentAlloc | Action::SegmentMap => tiling.add_range(pools.added_range(row, event)),
        Action::SegmentFree => tiling.free_segment(event.addr),
        Action::SegmentUnmap => tiling.unmap(event.addr, event.size),
        Action::Snapshot | Action::Oom | Action::Other => Ok(()),
    }
    .is_ok()
}

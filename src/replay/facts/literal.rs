//! The trace of one device, applied entry by entry.

use super::completions::lacks_completions;
use super::pool_index::PoolIndex;
use super::segment_pools::{SegmentPools, no_split_pools};
use super::start::Start;
use super::tiling::{Keep, Tiling};
use super::totals::Totals;
use crate::allocator::conf::Settings;
use crate::snapshot::{Action, Device, Pools, TraceEntry};

/// One device's trace, to be replayed as recorded.
#[derive(Debug, Clone, Copy)]
pub struct Literal<'a> {
    /// Whose trace.
    pub device: Device<'a>,
    /// The settings it was recorded under.
    pub settings: &'a Settings,
    /// Others that the program put into effect as it ran, each from an entry on, in order.
    pub later: &'a [LaterSettings],
}

/// Settings that the program put into effect as it ran.
#[derive(Debug, Clone, PartialEq)]
pub struct LaterSettings {
    /// Index of the first entry of the first call that is made under them.
    pub from: usize,
    /// All settings in effect from there.
    pub settings: Settings,
}

/// A moment of the replay: the start, or just after an entry.
#[derive(Debug)]
pub struct Step<'a> {
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
pub struct Outcome {
    /// The sums before the first entry; all 0 when the recording began at an empty allocator.
    pub start: Totals,
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

impl Outcome {
    /// Whether entries do not fit those before, or the state at the end.
    pub fn contradicts_itself(&self) -> bool {
        self.contradictions > 0 || self.end_differences > 0
    }
}

impl Literal<'_> {
    /// Replays the trace; `observe` sees the start and every entry. `keep` says what the [`Tiling`] has
    /// at hand of free blocks.
    pub fn run(&self, keep: Keep, mut observe: impl FnMut(&Step<'_>)) -> Outcome {
        let mut tiling = Tiling::new(self.settings.clone(), keep);
        tiling.hand_out_whole(no_split_pools(self.device, self.settings));
        let pools = PoolIndex::of(self.device);
        let start = Start::of(self.device, self.settings, &pools);
        let mut contradictions = start.lay(&mut tiling);
        drop(start);
        let start = tiling.totals();
        let mut first_contradiction = None;
        let mut of_failures = None;
        let lacks_completions = lacks_completions(self.device);
        observe(&Step { entry: None, tiling: &tiling, lacks_completions });
        let mut later = self.later.iter().peekable();
        for (index, mut event) in self.device.entries().enumerate() {
            while let Some(changed) = later.next_if(|later| later.from <= index) {
                tiling.reconfigure(&changed.settings);
            }
            let mut applied = event;
            if lacks_completions && event.action == Action::FreeRequested {
                applied.action = Action::FreeCompleted;
            }
            tiling.forget_changes();
            if !apply(index, &applied, &mut tiling, &pools) {
                contradictions += 1;
                first_contradiction = first_contradiction.or(Some(index));
            }
            if event.action == Action::Oom && event.pool.is_none() {
                let pools = of_failures.get_or_insert_with(|| SegmentPools::new(self.device));
                event.pool = Some(pools.of(&event)).filter(|pool| *pool != Pools::DEFAULT);
            }
            observe(&Step { entry: Some((index, event)), tiling: &tiling, lacks_completions });
        }
        let end_differences = self.differences(&tiling);
        Outcome { start, contradictions, first_contradiction, end_differences, lacks_completions }
    }

    fn differences(&self, tiling: &Tiling) -> u64 {
        let (mut blocks, mut same) = (0u64, 0u64);
        for block in self.device.blocks() {
            blocks += 1;
            same += u64::from(tiling.at(block.address) == Some((block.size, block.state)));
        }
        (blocks - same) + (tiling.len() as u64).saturating_sub(same)
    }
}

/// Applies one entry; says whether it fitted.
#[inline]
fn apply(row: usize, event: &TraceEntry, tiling: &mut Tiling, pools: &PoolIndex) -> bool {
    match event.action {
        Action::Alloc => tiling.alloc(event.addr, event.size, event.made_by, event.stream),
        Action::FreeRequested => tiling.free_requested(event.addr),
        Action::FreeCompleted => tiling.free_completed(event.addr),
        Action::SegmentAlloc | Action::SegmentMap => tiling.grow(pools.run_brought(row, event)),
        Action::SegmentFree => tiling.free_segment(event.addr),
        Action::SegmentUnmap => tiling.unmap(event.addr, event.size),
        Action::Snapshot | Action::Oom | Action::Other => Ok(()),
    }
    .is_ok()
}

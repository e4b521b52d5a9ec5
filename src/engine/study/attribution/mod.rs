//! Attributes every live block of a position to a category, phase, step, range, file, line and stack.
//!
//! In: one literal replay. Out: a [`MemoryBreakdown`] per position, and the lines whose memory grows ([`Leaks`]).
//! `block_lives` and `block_ends` read the trace, `classify` and `forward_blocks` assign categories to
//! single blocks, `older_blocks`, `gradient_buckets` and `parameter_copies` to groups of blocks, `named` to those that the
//! recorder knows, `doubts` lowers the confidence of what cannot be, `breakdown` sums up.

mod allocations;
mod block_ends;
mod block_lives;
mod breakdown;
mod classify;
mod doubts;
mod forward_blocks;
mod forward_pass;
mod gradient_buckets;
mod kept_graphs;
mod kept_groups;
mod leaks;
mod live_set;
mod loop_passes;
mod named;
mod older_blocks;
mod parameter_copies;
mod pass_sizes;
mod rules;
mod saved_operands;
mod trace_counts;
mod unused_graphs;

use serde::Serialize;

pub use self::allocations::classify_allocations;
pub use self::block_lives::BlockLives;
use self::breakdown::BreakdownBuilder;
pub use self::breakdown::{ByCategory, ByEngine, MemoryBreakdown};
pub use self::kept_graphs::KeptGraphs;
pub use self::kept_groups::{KeptGroup, Maker};
pub use self::leaks::{LeakSuspect, Leaks};
pub use self::live_set::{Allocation, LiveBlock};
pub use self::rules::CategoryRule;
pub use self::unused_graphs::UnusedGraphs;
use crate::replay::literal::inferred_capacity;
use crate::stacks::phases::StepMarker;
pub use crate::study::category::{Category, Confidence};
use crate::study::{DeviceStudy, TracePosition};

/// The training steps of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StepsReport {
    /// Number of steps that completed within the recording.
    pub completed: u64,
    /// The event that ends a step; null if the recording shows no steps.
    #[serde(rename = "told_by")]
    pub marker: Option<StepMarker>,
}

/// The result of attributing a device's memory in one replay.
#[derive(Default)]
pub struct Attribution {
    /// At the peak of allocated memory.
    pub at_peak: Option<MemoryBreakdown>,
    /// At the last failed request.
    pub at_failure: Option<MemoryBreakdown>,
    /// At the position that the caller named, else at the snapshot.
    pub at_position: Option<MemoryBreakdown>,
    /// Each training step.
    pub steps: StepsReport,
    /// Memory that grows from step to step.
    pub leaks: Leaks,
}

/// Attributes the memory of `device` at the peak, the last failure and `position`; without a trace that at the snapshot, as
/// far as stacks alone show it. `lifetimes` must be the device's own, and are returned as [`classify_allocations`] takes them.
/// Tables have `top` rows; `rules` add custom categories.
pub fn attribute_memory<'s>(
    device: DeviceStudy<'s, '_>,
    lifetimes: BlockLives<'s>,
    position: TracePosition,
    rules: &[CategoryRule],
    top: usize,
) -> (Attribution, BlockLives<'s>) {
    let history = device.history();
    // PyTorch's own peak counts memory that sleeps.
    let peak = device.sleep().map_or_else(|| history?.peak_entry(), |sleep| sleep.peak_event);
    let peak = peak.and_then(|entry| usize::try_from(entry).ok());
    let failure = device.failed_requests().next_back();
    let position = match position {
        TracePosition::Snapshot => device.device().len().checked_sub(1),
        TracePosition::Start => None,
        TracePosition::Entry { event } => usize::try_from(event).ok(),
    };
    let mut wanted = vec![peak, position];
    wanted.extend(failure.map(Some));
    let mut lifetimes = lifetimes.with_live_sets(device, wanted);
    lifetimes.live_sets.iter_mut().for_each(|live_set| live_set.remove_asleep(device));
    let phases = device.phases();
    let positions = [history.map(|_| peak), failure.map(Some), Some(position)];
    let [at_peak, at_failure, at_position] = positions.map(|position| {
        let live_set = lifetimes.live_sets.iter().find(|set| Some(set.entry) == position)?;
        Some(BreakdownBuilder::new(device, &lifetimes, live_set).build(rules, top))
    });
    let reserved_before = history.map_or(0, |history| history.outcome.initial_totals.reserved);
    let capacity = device.scope().capacity.or_else(|| inferred_capacity(device.device(), reserved_before));
    let capacity = capacity.or_else(|| device.recorded_capacity());
    let attribution = Attribution {
        at_peak,
        at_failure,
        at_position,
        steps: StepsReport { completed: phases.steps.ends().len() as u64, marker: phases.steps.marker() },
        leaks: Leaks::from_device(device, top, capacity),
    };
    (attribution, lifetimes)
}

/// The live blocks after entry `entry` of `device`'s trace, by address, each with its category and how sure that is.
/// Empty if the trace has no such entry.
pub fn categorized_blocks(device: DeviceStudy<'_, '_>, entry: usize) -> Vec<(LiveBlock, (Category, Confidence))> {
    let lifetimes = BlockLives::from_trace(device).with_live_sets(device, vec![Some(entry)]);
    let Some(live_set) = lifetimes.live_sets.first() else { return Vec::new() };
    live_set.blocks.iter().copied().zip(classify::classify(live_set, &lifetimes)).collect()
}

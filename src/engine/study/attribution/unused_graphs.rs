//! Graphs that forward passes keep and that no backward pass uses: the model runs without `torch.no_grad()`.

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::live_set::{LiveBlock, LiveSet, TracePoint};
use super::saved_operands::has_saved_operands;
use super::trace_counts::TraceCounts;
use crate::base::ids::StackId;
use crate::base::units::ratio;
use crate::stacks::frames::FrameReport;
use crate::stacks::phases::{Phase, Phases};
use crate::study::DeviceStudy;
use crate::study::category::{Category, Classification};
use crate::study::memory::{BlockSums, sorted_by_bytes, sum_by_key};

/// Graphs smaller than this share of the allocated memory are not worth a change.
const MIN_SHARE: f64 = 0.05;
/// Without a recorded backward pass, graphs that are never freed count only from this number of forward passes on,
/// since a training step may run several before its backward pass. The last pass never counts.
const MIN_PASSES: usize = 4;

/// Activations of forward passes that no backward pass follows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnusedGraphs {
    /// Bytes of these activations.
    pub bytes: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
    /// Number of forward passes whose activations are live.
    pub passes: u64,
    /// Whether the recording has a backward pass; without one, the first may be still to come.
    pub after_backward: bool,
    /// The line that runs the model for most of them: it belongs under `torch.no_grad()` or `torch.inference_mode()`.
    pub called_at: FrameReport,
}

/// Finds the unused graphs among the blocks of `live_set`, which hold `allocated_bytes`.
pub(super) fn find_unused_graphs(
    device: DeviceStudy<'_, '_>,
    live_set: &LiveSet,
    classified: &[Classification],
    counts: &TraceCounts<'_>,
    allocated_bytes: u64,
) -> Option<UnusedGraphs> {
    let (phases, stacks) = (counts.phases, device.stacks());
    let activations = live_set.blocks.iter().zip(classified).filter(|(_, (kind, _))| *kind == Category::Activations);
    // Either no backward pass starts before it is freed, or other forward passes do while it is live.
    let unused = activations.filter_map(|(block, _)| {
        let allocated_at = block.allocated_at?;
        let end = block.freed_at.unwrap_or(live_set.observed_until);
        let is_unused = counts.phase(allocated_at) == Phase::Forward
            && phases.stack_traits(block.stack).has_forward_frame
            && counts.forward_pass(allocated_at).keeps_graph()
            && counts.backward_passes_at(end) == counts.backward_passes_at(allocated_at)
            && (block.freed_at.is_some() || counts.forwards_begun_at(end) > counts.forwards_begun_at(allocated_at));
        is_unused.then_some((block, allocated_at))
    });
    let unused: Vec<(&LiveBlock, TracePoint)> = unused.collect();
    let passes: FxHashSet<usize> = unused.iter().map(|(_, at)| counts.forwards_begun_at(*at)).collect();
    let is_freed = unused.iter().any(|(block, _)| block.freed_at.is_some());
    let by_stack: BlockSums<StackId> = sum_by_key(unused.iter().map(|(block, _)| (block.stack, block.bytes)));
    let bytes = by_stack.values().map(|sum| sum.bytes).sum();
    let share_ratio = ratio(bytes, allocated_bytes);
    let usual = max_passes_before_backward(phases);
    let min_passes = usual.map_or(MIN_PASSES, |usual| usual + 1);
    let points: Vec<TracePoint> = unused.iter().map(|(_, allocated_at)| *allocated_at).collect();
    if share_ratio < MIN_SHARE || !is_freed && passes.len() < min_passes {
        return None;
    }
    let (largest, _) = sorted_by_bytes(by_stack).into_iter().next()?;
    // Outside modules, a cache that the program extends itself looks the same.
    let called_at = stacks.frame_report(stacks.model_call(largest)?);
    let (passes, after_backward) = (passes.len() as u64, usual.is_some());
    let graphs = UnusedGraphs { bytes, share_ratio, passes, after_backward, called_at };
    has_saved_operands(device, live_set, &points).then_some(graphs)
}

/// The maximum number of forward passes from one backward pass to the next; `None` without a backward pass.
fn max_passes_before_backward(phases: &Phases) -> Option<usize> {
    let starts = phases.runs().iter().filter(|run| run.phase == Phase::Backward);
    let mut counts = starts.map(|run| phases.forwards_begun(run.start as usize));
    let first = counts.next()?;
    Some(counts.fold((first, first), |(usual, before), count| (usual.max(count - before), count)).0)
}

//! Groups the live blocks of a failure by the calls that made them: evidence of what the program keeps, without names.

use rustc_hash::{FxHashMap, FxHashSet};

use super::live_set::{LiveBlock, LiveSet, TracePoint};
use super::loop_passes::{LoopPasses, MadeBy};
use super::saved_operands::has_saved_operands;
use super::trace_counts::TraceCounts;
use crate::base::ids::StackId;
use crate::base::units::ratio;
use crate::base::warning::words;
use crate::snapshot::Snapshot;
use crate::stacks::frames::{FrameReport, Origin, StackReader, forward_slashes};
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::category::{Category, Classification, Confidence};
use crate::study::iterations::{GrowingLine, GrowthKind};
use crate::study::memory::{BlockSum, sorted_by_bytes, sum_by_key};

/// Groups with a smaller share of the allocated memory are no evidence.
const MIN_SHARE: f64 = 0.1;
/// Most of the bytes.
const HALF: f64 = 0.5;
/// Passes that left less than 1/this of what another left add nothing to a collection.
const MIN_PASS_PARTS: u64 = 64;
/// One line made almost all of a group from this share on.
const ALMOST_ALL: f64 = 0.9;
/// A graph has at least this number of blocks of a pass.
const MIN_GRAPH_BLOCKS: usize = 3;

words! {
    /// Code of a library that shows what blocks are for.
    pub enum Maker {
        /// `torch.load`
        Load = "load",
        /// `copy.deepcopy` of a module or a state dict
        Copy = "copy",
        /// The loop of `transformers` that gathers predictions
        Predictions = "predictions",
        /// A metric of `torchmetrics`
        Metric = "metric",
        /// Anything else
        Other = "other",
    }
}

/// Files and functions of each maker.
const MAKERS: [(&str, Option<&str>, Maker); 5] = [
    ("torch/serialization.py", None, Maker::Load),
    ("/copy.py", Some("deepcopy"), Maker::Copy),
    ("transformers/trainer_pt_utils.py", None, Maker::Predictions),
    ("transformers/trainer.py", Some("prediction_step"), Maker::Predictions),
    ("torchmetrics/metric.py", None, Maker::Metric),
];
/// Wrappers that turn gradients off: of functions under `torch.no_grad()` and `torch.inference_mode()`, and of the
/// forward pass of an `autograd.Function`, which saves what it needs itself.
const GRAD_OFF: [(&str, &str); 2] =
    [("torch/utils/_contextlib.py", "decorate_context"), ("torch/autograd/function.py", "apply")];

/// Live blocks that the same calls made.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct KeptGroup {
    /// The innermost line of the user's code around the call of a module, an optimizer or a constructor.
    pub line: FrameReport,
    /// The line below `line` that made almost all of it; absent if several did.
    pub made_at: Option<FrameReport>,
    /// Bytes in these blocks.
    pub bytes: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
    /// Number of passes of the program's loops that left a block.
    pub passes: u64,
    /// How it grows from iteration to iteration, if that is known.
    pub growth: Option<GrowthKind>,
    /// Passes that left as many bytes as most others.
    pub equal_passes: u64,
    /// The program drops blocks of earlier passes about as fast as it makes new ones.
    pub is_bounded: bool,
    /// The program has gone on to other lines or passes since.
    pub is_over: bool,
    /// Number of forward passes that began between its oldest and its newest block.
    pub forwards_between: u64,
    /// Number of passes of the loops around it that began since its newest block.
    pub passes_since: u64,
    /// Modules of PyTorch made most of it when they were built or moved.
    pub made_by_modules: bool,
    /// Modules made it while they were called.
    pub in_forward: bool,
    /// Bytes in the largest block.
    pub largest_bytes: u64,
    /// The category of most bytes.
    pub category: Category,
    /// Forward passes with gradients made most of it.
    pub keeps_graph: bool,
    /// Backward passes left as many blocks of the same sizes.
    pub has_gradients: bool,
    /// A backward pass started since most of it was made.
    pub before_backward: bool,
    /// Some stack shows that gradients are off, so that `torch.no_grad()` changes nothing.
    pub is_grad_off: bool,
    /// The text of the program turns the garbage collector off.
    pub is_collector_off: bool,
    /// Made by a call in which an earlier request failed.
    pub of_failed_call: bool,
    /// The code of a library that made it.
    pub maker: Maker,
    /// For each block, in order, the trace entry that made it, and what identifies the pass.
    pub blocks: Vec<(u32, (u64, u64))>,
}

/// A block of a group, with its category.
type GroupedBlock<'b> = (&'b LiveBlock, Category, &'b MadeBy);

/// The groups among the blocks of `live_set`, most bytes first.
pub(super) fn kept_groups(
    device: DeviceStudy<'_, '_>,
    counts: &TraceCounts<'_>,
    live_set: &LiveSet,
    classified: &[Classification],
) -> Vec<KeptGroup> {
    let passes = &LoopPasses::up_to(device, live_set);
    let makers = &Makers::new(device.snapshot(), device.stacks());
    let all_bytes = BlockSum::from_sizes(live_set.blocks.iter().map(|block| block.bytes)).bytes;
    let is_collector_off = device.text().turns_collector_off();
    let reader = GroupReader { device, counts, live_set, passes, makers, all_bytes, is_collector_off };
    let mut groups: FxHashMap<(u32, Maker), Vec<GroupedBlock<'_>>> = FxHashMap::default();
    for (block, classification) in live_set.blocks.iter().zip(classified) {
        if let Some(made_by) = passes.blocks.get(&block.address) {
            let key = (made_by.chain.id, makers.of_stack(block.stack));
            groups.entry(key).or_default().push((block, sure_category(*classification), made_by));
        }
    }
    let groups = groups.into_iter().filter_map(|((chain, maker), blocks)| reader.read(chain, maker, &blocks));
    let mut groups: Vec<KeptGroup> = groups.collect();
    groups.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.line.cmp(&other.line)));
    groups
}

/// Works out the facts about a group from its blocks.
struct GroupReader<'g, 's, 'a> {
    device: DeviceStudy<'s, 'a>,
    counts: &'g TraceCounts<'g>,
    /// At the failed request.
    live_set: &'g LiveSet,
    passes: &'g LoopPasses,
    makers: &'g Makers<'a>,
    all_bytes: u64,
    is_collector_off: bool,
}

impl GroupReader<'_, '_, '_> {
    /// The group of the `blocks` that the calls of `chain` made; `None` if it is too small.
    fn read(&self, chain: u32, maker: Maker, blocks: &[GroupedBlock<'_>]) -> Option<KeptGroup> {
        let (passes, phases) = (self.passes, self.device.phases());
        let bytes = BlockSum::from_sizes(blocks.iter().map(|(block, ..)| block.bytes)).bytes;
        let growing = passes.growing.get(&chain).filter(|lines| live_bytes(lines) >= bytes / 2);
        let iterations = growing.into_iter().flatten().map(|line| line.iterations).max().unwrap_or(0);
        let share_ratio = ratio(bytes, self.all_bytes);
        let line = blocks.first()?.2.chain.line.filter(|_| share_ratio >= MIN_SHARE)?;
        let by_pass = sum_by_key(blocks.iter().map(|(block, _, made_by)| (self.pass_of(block, made_by), block.bytes)));
        let largest_pass = by_pass.values().map(|sum| sum.bytes).max().unwrap_or(0);
        let large = by_pass.values().filter(|sum| sum.bytes >= largest_pass / MIN_PASS_PARTS);
        let passes_by_bytes = sum_by_key(large.map(|sum| (sum.bytes, 0)));
        let by_category = sum_by_key(blocks.iter().map(|(block, category, _)| (*category, block.bytes)));
        let points: Vec<TracePoint> = blocks.iter().filter_map(|(block, ..)| block.allocated_at).collect();
        let oldest = points.iter().min_by_key(|at| at.entry)?;
        let newest = points.iter().max_by_key(|at| at.entry)?;
        let made_in = blocks
            .iter()
            .filter_map(|(block, _, made_by)| Some((block.allocated_at?.entry, self.pass_of(block, made_by))));
        let mut made_in: Vec<(u32, (u64, u64))> = made_in.collect();
        made_in.sort_unstable();
        let stacks = self.device.stacks();
        let by_frame = sum_by_key(blocks.iter().map(|(block, ..)| (stacks.user_frame(block.stack), block.bytes)));
        let made_at = sorted_by_bytes(by_frame)
            .first()
            .and_then(|(frame, sum)| frame.filter(|frame| *frame != line && ratio(sum.bytes, bytes) >= ALMOST_ALL));
        Some(KeptGroup {
            made_at: made_at.map(|frame| stacks.frame_report(frame)),
            line: stacks.frame_report(line),
            bytes,
            share_ratio,
            passes: iterations.max(passes_by_bytes.values().map(|sum| sum.blocks).sum()),
            growth: growing.map(|lines| growth_kind(lines)),
            equal_passes: passes_by_bytes.values().map(|sum| sum.blocks).max().unwrap_or(0),
            is_bounded: passes.is_bounded(chain, bytes),
            is_over: blocks.iter().all(|(_, _, made_by)| passes.is_over(made_by)),
            forwards_between: self.forwards(*newest) - self.forwards(*oldest),
            passes_since: blocks.iter().map(|(_, _, made_by)| passes.passes_since(made_by)).min().unwrap_or(0),
            made_by_modules: are_most(blocks, |block| phases.stack_traits(block.stack).purpose.is_some()),
            in_forward: are_most(blocks, |block| phases.stack_traits(block.stack).has_forward_frame),
            largest_bytes: blocks.iter().map(|(block, ..)| block.bytes).max().unwrap_or(0),
            category: sorted_by_bytes(by_category).first().map_or(Category::Other, |(category, _)| *category),
            // With fewer blocks per pass, these are its outputs.
            keeps_graph: blocks.len() >= MIN_GRAPH_BLOCKS * by_pass.len()
                && are_most(blocks, |block| self.belongs_to_graph(block))
                && has_saved_operands(self.device, self.live_set, &points),
            has_gradients: self.has_gradients(blocks),
            before_backward: are_most(blocks, |block| self.is_before_backward(block)),
            is_grad_off: blocks.iter().any(|(block, ..)| self.makers.is_grad_off(block.stack)),
            is_collector_off: self.is_collector_off,
            of_failed_call: self.belongs_to_failed_call(chain, blocks),
            maker,
            blocks: made_in,
        })
    }

    /// Number of forward passes that began before `at`.
    fn forwards(&self, at: TracePoint) -> u64 {
        self.counts.forwards_begun_at(at) as u64
    }

    /// Identifies the pass of a loop that made `block`. Several calls of a module at one line differ only in the number of
    /// forward passes that began before.
    fn pass_of(&self, block: &LiveBlock, made_by: &MadeBy) -> (u64, u64) {
        let call = block.allocated_at.filter(|_| made_by.chain.calls_module);
        (made_by.pass, call.map_or(0, |at| self.forwards(at)))
    }

    /// Whether `block` belongs to a graph. If a backward pass freed the graph, the rest are outputs that, for example, a
    /// hook stored.
    fn belongs_to_graph(&self, block: &LiveBlock) -> bool {
        block.allocated_at.is_some_and(|at| {
            let pass = self.counts.forward_pass(at);
            self.counts.phase(at) == Phase::Forward && pass.keeps_graph() && pass.retains_graph()
        })
    }

    /// Whether backward passes made as many live blocks of the sizes of `blocks`.
    fn has_gradients(&self, blocks: &[GroupedBlock<'_>]) -> bool {
        let sizes: FxHashSet<u64> = blocks.iter().map(|(block, ..)| block.bytes).collect();
        let live = self.live_set.blocks.iter().filter(|block| sizes.contains(&block.bytes));
        live.filter(|block| self.is_from_backward(block)).count() >= blocks.len()
            && !blocks.iter().any(|(block, ..)| self.is_from_backward(block))
    }

    fn is_from_backward(&self, block: &LiveBlock) -> bool {
        block.allocated_at.is_some_and(|at| self.counts.phase(at) == Phase::Backward)
    }

    /// Whether a backward pass started after `block` was made, other than a running one, which may use its graph.
    fn is_before_backward(&self, block: &LiveBlock) -> bool {
        let is_running = self.counts.phase(self.live_set.point) == Phase::Backward;
        let passes = self.counts.backward_passes_at(self.live_set.point) - u32::from(is_running);
        block.allocated_at.is_some_and(|at| self.counts.backward_passes_at(at) < passes)
    }

    /// Whether a call of `chain` made some of `blocks` before an earlier request of it failed.
    fn belongs_to_failed_call(&self, chain: u32, blocks: &[GroupedBlock<'_>]) -> bool {
        let failed = self.passes.failed.iter();
        failed.filter(|(_, call)| call.chain.id == chain && call.chain.calls_module).any(|(entry, _)| {
            let forward = self.device.phases().forwards_begun(*entry) as u64;
            let mut points = blocks.iter().filter_map(|(block, ..)| block.allocated_at);
            points.any(|at| (at.entry as usize) < *entry && self.forwards(at) == forward)
        })
    }
}

/// Whether the blocks for which `is_counted` holds have most of the bytes.
fn are_most(blocks: &[GroupedBlock<'_>], is_counted: impl Fn(&LiveBlock) -> bool) -> bool {
    let all = blocks.iter().map(|(block, ..)| *block);
    let counted = BlockSum::from_sizes(all.clone().filter(|block| is_counted(block)).map(|block| block.bytes));
    ratio(counted.bytes, BlockSum::from_sizes(all.map(|block| block.bytes)).bytes) > HALF
}

fn growth_kind(lines: &[GrowingLine]) -> GrowthKind {
    let replaced: Vec<GrowingLine> = lines.iter().copied().filter(|line| line.blocks == 0).collect();
    if live_bytes(&replaced) > live_bytes(lines) / 2 { GrowthKind::Replaced } else { GrowthKind::Kept }
}

fn live_bytes(lines: &[GrowingLine]) -> u64 {
    lines.iter().fold(0u64, |sum, line| sum.saturating_add(line.live_bytes))
}

/// A guess is no evidence.
fn sure_category((category, confidence): Classification) -> Category {
    if confidence == Confidence::Low { Category::Other } else { category }
}

/// The frames of a snapshot that show what blocks are for.
struct Makers<'a> {
    snapshot: &'a Snapshot,
    /// For each frame the maker, and whether it shows that gradients are off.
    by_frame: Vec<(Maker, bool)>,
}

impl<'a> Makers<'a> {
    fn new(snapshot: &'a Snapshot, stacks: &StackReader<'_>) -> Self {
        let makers = snapshot.stacks.frame_ids().map(|id| {
            let (file, name) = snapshot.frame_text(id);
            let file = forward_slashes(file);
            if stacks.origin(id) == Origin::User {
                return (Maker::Other, false);
            }
            let maker = MAKERS
                .iter()
                .find(|(known, function, _)| file.ends_with(known) && function.is_none_or(|function| function == name))
                .map_or(Maker::Other, |(.., maker)| *maker);
            (maker, GRAD_OFF.iter().any(|(known, function)| file.ends_with(known) && name == *function))
        });
        Self { snapshot, by_frame: makers.collect() }
    }

    fn of_stack(&self, stack: StackId) -> Maker {
        let mut makers = self.snapshot.stacks.frames(stack).iter().map(|frame| self.by_frame[frame.index()].0);
        makers.find(|maker| *maker != Maker::Other).unwrap_or(Maker::Other)
    }

    fn is_grad_off(&self, stack: StackId) -> bool {
        self.snapshot.stacks.frames(stack).iter().any(|frame| self.by_frame[frame.index()].1)
    }
}

//! Sums up the live blocks of a position by category, engine, pool, phase, line and stack.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::block_lives::BlockLives;
use super::classify::classify;
use super::kept_groups::{KeptGroup, kept_groups};
use super::live_set::{LiveBlock, LiveSet};
use super::rules::{CategoryRule, RuleMatcher};
use super::unused_graphs::{UnusedGraphs, find_unused_graphs};
use crate::base::details::promised;
use crate::base::units::escape_name;
use crate::snapshot::{Action, Pools, Segment};
use crate::stacks::engines::Engine;
use crate::stacks::phases::Phase;
use crate::study::category::{Category, Classification, Confidence, ConfidenceBytes};
use crate::study::memory::{
    BlockSum, BlockSums, HeldBlock, Holder, LiveByStack, NamedShare, Share, TopRows, sorted_by_bytes, sum_by_key,
};
use crate::study::variables::KeptByVariable;
use crate::study::{DeviceStudy, memory};

/// Lines of a position that are compared with those of other ranks, at most.
const COMPARED_LINES: usize = 40;

/// The live memory at one position. The rows of each table add up to `allocated_bytes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct MemoryBreakdown {
    /// Index of the entry that the position follows; null for the start of the trace.
    pub event: Option<u64>,
    /// The phase of the program.
    pub phase: Phase,
    /// The training step, counted from 0; null before the first step, or if the recording shows no steps.
    pub step: Option<u32>,
    /// Bytes in live blocks.
    pub allocated_bytes: u64,
    /// Number of live blocks.
    pub blocks: u64,
    /// By category, most bytes first.
    pub by_category: Vec<ByCategory>,
    /// By serving engine, most bytes first; absent if none holds any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_engine: Vec<ByEngine>,
    /// The uses of private pools (CUDA graphs, `MemPool`): the category that has most of each, most bytes first.
    #[serde(skip)]
    pub pools_for: Vec<Category>,
    /// By custom category of `oomscope.toml`, most bytes first; null for blocks that no rule matches; absent without
    /// custom categories.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_rule: Vec<NamedShare>,
    /// By the phase that allocated the blocks, most bytes first; null for blocks that are older than the recording.
    pub by_phase: Vec<NamedShare>,
    /// By source line and category.
    pub by_line: TopRows<Holder>,
    /// By the owner of the variable that keeps it; absent unless this is the memory of the snapshot and most of it has a
    /// name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_variable: Vec<KeptByVariable>,
    /// The same with enough rows to compare ranks.
    #[serde(skip)]
    pub compared_lines: Vec<Holder>,
    /// By stack.
    pub by_stack: TopRows<LiveByStack>,
    /// Activations of forward passes that no backward pass follows, if they hold 5% of the memory or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused_graphs: Option<UnusedGraphs>,
    /// By the calls that made it, most bytes first; only where a request failed.
    #[serde(skip)]
    pub kept_groups: Vec<KeptGroup>,
}

promised! {
    MemoryBreakdown { event, phase, step, allocated_bytes, blocks, by_category, by_line }
}

/// Live memory of one category.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByCategory {
    /// The category.
    pub category: Category,
    /// Size and share.
    #[serde(flatten)]
    pub share: Share,
    /// The confidence that at least half of the bytes have or exceed.
    pub confidence: Confidence,
    /// Bytes with high confidence, and known ones.
    pub high_bytes: u64,
    /// The part of `high_bytes` that the recorder saw in use.
    pub known_bytes: u64,
    /// Bytes with medium confidence; the confidence of the others is low.
    pub medium_bytes: u64,
}

/// Live memory that the code of one serving engine allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByEngine {
    /// `vLLM` or `SGLang`; null for all other code of the program, such as training beside an engine.
    pub engine: Option<&'static Engine>,
    /// Size and share.
    #[serde(flatten)]
    pub share: Share,
    /// The same by category, most bytes first; shares are of all live memory.
    pub by_category: Vec<ByCategory>,
}

/// Builds a [`MemoryBreakdown`] from the live blocks of one position.
pub(super) struct BreakdownBuilder<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    lifetimes: &'a BlockLives<'a>,
    live_set: &'a LiveSet,
    all: BlockSum,
}

impl<'a, 'f> BreakdownBuilder<'a, 'f> {
    pub(super) fn new(device: DeviceStudy<'a, 'f>, lifetimes: &'a BlockLives<'a>, live_set: &'a LiveSet) -> Self {
        Self { device, lifetimes, live_set, all: BlockSum::from_sizes(live_set.blocks.iter().map(|block| block.bytes)) }
    }

    pub(super) fn build(&self, rules: &[CategoryRule], top: usize) -> MemoryBreakdown {
        let stacks = self.device.stacks();
        let classified = classify(self.live_set, self.lifetimes);
        let lines = self.holders(&classified, top.max(COMPARED_LINES));
        MemoryBreakdown {
            event: self.live_set.entry.map(|entry| entry as u64),
            phase: self.lifetimes.counts.phase(self.live_set.point),
            step: self.live_set.entry.and_then(|entry| self.lifetimes.counts.phases.steps.step_at(entry)),
            allocated_bytes: self.all.bytes,
            blocks: self.all.blocks,
            by_category: self.by_category(&classified, |_| true),
            by_engine: self.by_engine(&classified),
            pools_for: self.pools_for(&classified),
            by_rule: self.by_rule(rules),
            by_phase: self.by_phase(),
            by_line: memory::first_holders(&lines.rows, self.all, top),
            compared_lines: lines.rows,
            by_variable: self.by_variable(&classified, top),
            by_stack: memory::top_rows(self.sums(|block| Some(block.stack)), self.all, top, |stack, sum| LiveByStack {
                share: sum.share_of(self.all),
                frames: stacks.frame_list(stack),
            }),
            unused_graphs: self.unused_graphs(&classified),
            kept_groups: self.kept_groups(&classified),
        }
    }

    /// Sums up the blocks by `key`; skips those without one.
    fn sums<K: Eq + std::hash::Hash>(&self, mut key: impl FnMut(&LiveBlock) -> Option<K>) -> BlockSums<K> {
        sum_by_key(self.live_set.blocks.iter().filter_map(|block| Some((key(block)?, block.bytes))))
    }

    fn unused_graphs(&self, classified: &[Classification]) -> Option<UnusedGraphs> {
        // A captured graph keeps the memory of the passes in it, and is replayed without allocations.
        if self.device.device().segments().any(|segment| segment.pool != Pools::DEFAULT) {
            return None;
        }
        find_unused_graphs(self.device, self.live_set, classified, &self.lifetimes.counts, self.all.bytes)
    }

    fn kept_groups(&self, classified: &[Classification]) -> Vec<KeptGroup> {
        if self.live_set.entry.is_none_or(|entry| self.device.device().action(entry) != Some(Action::Oom)) {
            return Vec::new();
        }
        kept_groups(self.device, &self.lifetimes.counts, self.live_set, classified)
    }

    fn by_engine(&self, classified: &[Classification]) -> Vec<ByEngine> {
        let phases = self.lifetimes.counts.phases;
        let sums = self.sums(|block| Some(phases.stack_traits(block.stack).engine));
        if sums.keys().all(Option::is_none) {
            return Vec::new();
        }
        let rows = sorted_by_bytes(sums).into_iter().map(|(engine, sum)| ByEngine {
            engine,
            share: sum.share_of(self.all),
            by_category: self.by_category(classified, |block| phases.stack_traits(block.stack).engine == engine),
        });
        rows.collect()
    }

    /// Pools are those that exist at the snapshot.
    fn pools_for(&self, classified: &[Classification]) -> Vec<Category> {
        let mut private: Vec<&Segment> =
            self.device.device().segments().filter(|segment| segment.pool != Pools::DEFAULT).collect();
        private.sort_unstable_by_key(|segment| segment.address);
        let in_pools = self.live_set.blocks.iter().zip(classified).filter_map(|(block, (category, _))| {
            let after = private.partition_point(|segment| segment.address <= block.address);
            let segment = private[..after].last()?;
            let is_inside = block.address - segment.address < segment.total_size;
            is_inside.then_some(((segment.pool, *category), block.bytes))
        });
        let (mut pools, mut purposes) = (FxHashSet::default(), Vec::new());
        for ((pool, category), _) in sorted_by_bytes(sum_by_key(in_pools)) {
            // Descending: the first category of a pool has most of it.
            if pools.insert(pool) && category != Category::Other && !purposes.contains(&category) {
                purposes.push(category);
            }
        }
        purposes
    }

    /// Sums up the blocks for which `is_wanted`.
    fn by_category(&self, classified: &[Classification], is_wanted: impl Fn(&LiveBlock) -> bool) -> Vec<ByCategory> {
        let blocks = self.live_set.blocks.iter().zip(classified).filter(|(block, _)| is_wanted(block));
        let mut confidences: FxHashMap<Category, ConfidenceBytes> = FxHashMap::default();
        for (block, (category, confidence)) in blocks.clone() {
            confidences.entry(*category).or_default().add(*confidence, block.bytes);
        }
        let sums = sum_by_key(blocks.map(|(block, (category, _))| (*category, block.bytes)));
        let rows = sorted_by_bytes(sums).into_iter().map(|(category, sum)| {
            let of = confidences[&category];
            let [known_bytes, high_bytes] = [1, 2].map(|best| of.sum_of(best));
            let (medium_bytes, confidence) = (of.sum_of(3) - high_bytes, of.of_half());
            ByCategory { category, share: sum.share_of(self.all), confidence, high_bytes, known_bytes, medium_bytes }
        });
        rows.collect()
    }

    /// The holders of the blocks for which `is_wanted`, and the sum of these.
    fn holders(&self, classified: &[Classification], top: usize) -> TopRows<Holder> {
        let held = self.live_set.blocks.iter().zip(classified).map(|(block, classification)| {
            let is_older = block.allocated_at.is_none() && self.lifetimes.has_trace;
            (HeldBlock { stack: block.extended_stack, classification: Some(*classification), is_older }, block.bytes)
        });
        memory::top_holders(self.device.stacks(), held, self.all, top)
    }

    fn by_variable(&self, classified: &[Classification], top: usize) -> Vec<KeptByVariable> {
        let blocks = self.live_set.blocks.iter().zip(classified);
        let blocks: Vec<_> = blocks.map(|(block, class)| (block.address, block.bytes, *class)).collect();
        let variables = self.device.variables();
        variables.map(|variables| variables.holders(self.device.stacks(), &blocks, top)).unwrap_or_default()
    }

    fn by_rule(&self, rules: &[CategoryRule]) -> Vec<NamedShare> {
        if rules.is_empty() {
            return Vec::new();
        }
        let mut matcher = RuleMatcher::new(self.device, rules, self.live_set.entry.map_or(0, |entry| entry + 1));
        // Rules with equal names form one category.
        let sums = self.sums(|block| Some(matcher.rule_of(block).map(|at| &*rules[at].name)));
        let rows = sorted_by_bytes(sums).into_iter();
        rows.map(|(name, sum)| sum.named(name.map(escape_name), self.all)).collect()
    }

    fn by_phase(&self) -> Vec<NamedShare> {
        let sums = self.sums(|block| Some(block.allocated_at.map(|at| self.lifetimes.counts.phase(at))));
        let rows = sorted_by_bytes(sums).into_iter();
        rows.map(|(phase, sum)| sum.named(phase.map(|phase| phase.word().to_owned()), self.all)).collect()
    }
}

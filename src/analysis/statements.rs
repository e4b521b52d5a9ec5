//! The variables that keep the memory of a failed request, inferred from stacks, lifetimes and the text of the program,
//! for snapshots whose recorder named none.
//!
//! Blocks of one stack have one history. [`ProgramText::keepers`] finds candidate statements in the text. When the blocks
//! were made, and which calls still run, rules some of them out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::failure::OomReport;
use super::running_calls::{RunningCalls, lines_of};
use crate::base::ids::{StackId, to_u32};
use crate::base::units::{escape_name, ratio};
use crate::python::{Keep, Line};
use crate::snapshot::{Action, BlockState, RootKind, TensorKind, WriteKind};
use crate::stacks::frames::{Origin, StackReader, forward_slashes};
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::attribution::{KeptGroup, Leaks};
use crate::study::memory::{BlockSum, TopRows};
use crate::study::variables::{Container, KeptByVariable, KeptReport, Written};

/// Stacks that hold a smaller share of the memory are ignored.
const MIN_GROUP_RATIO: f64 = 0.002;
const MAX_GROUPS: usize = 300;
/// A container with fewer items is no collection.
const MIN_ITEMS: u64 = 3;
/// If values come from this many passes and the running one, one variable cannot hold all of them.
const MIN_PASSES: usize = 2;
/// A graph keeps blocks of at least this many stacks inside modules; a result without a graph has one.
const MIN_GRAPH_LINES: usize = 3;

/// The live blocks of one stack at a failure.
#[derive(Debug, Default, Clone)]
struct Group {
    sum: BlockSum,
    /// The entries that allocated them, ascending; 0 for those that are older than the trace.
    entries: Vec<usize>,
    /// Number of blocks of this stack that were freed before, and the largest of them.
    freed: usize,
    largest_freed: u64,
    /// Number of blocks that were allocated.
    made: usize,
    /// The latest block is live.
    has_last: bool,
    /// In the first half of the trace: the maximum number of live blocks when a block other than the latest was freed.
    full: usize,
    /// Its line keeps more in each iteration.
    grows: bool,
    /// Parameters and buffers.
    has_parameters: bool,
    largest: u64,
}

impl Group {
    /// The number of blocks that were made at or after entry `since`.
    fn made_since(&self, since: usize) -> usize {
        self.entries.len() - self.entries.partition_point(|entry| *entry < since)
    }

    /// The program once freed old blocks at about the present number of blocks: a cache with a limit, not a leak.
    fn is_limited(&self) -> bool {
        !self.grows && self.full * 5 >= self.entries.len() * 4
    }

    /// Each block replaces a smaller one.
    fn is_replaced(&self) -> bool {
        self.freed > 0 && self.largest > self.largest_freed
    }
}

/// The memory that one statement keeps, or that no statement has kept yet.
#[derive(Default)]
struct Kept {
    keep: Option<Keep>,
    sum: BlockSum,
    /// The numbers of blocks by stack.
    counts: Vec<u64>,
    /// Bytes of each stack through modules that record graphs, and whether several passes made them.
    graphs: Vec<(u64, bool)>,
    kind: Option<TensorKind>,
    largest: (u64, StackId),
    /// An installed package made some of it.
    has_package: bool,
}

/// The statements that keep the memory at `oom`, the failure in the `failing` calls; `None` if the text shows none.
pub(super) fn kept_by_statements(oom: &OomReport, leaks: &Leaks, failing: &RunningCalls<'_, '_>) -> Option<KeptReport> {
    let device = failing.device;
    let program = Some(device.text()).filter(|program| !program.is_empty())?;
    let (mut groups, all) = live_groups(device, failing.failed);
    let stacks = device.stacks();
    let mut kept: BTreeMap<(String, u32, String), Kept> = BTreeMap::new();
    let mut running = Kept::default();
    let mut untrained: Option<(String, Kept)> = None;
    for (stack, group) in &mut groups {
        let lines = lines_of(device, *stack);
        let traits = StackTraits::new(device, *stack);
        group.has_parameters = traits.kind == Some(TensorKind::Parameter);
        let group = &*group;
        if traits.is_backward {
            continue;
        }
        let mut keeps: Vec<Keep> = match traits.kind {
            Some(TensorKind::OptimizerState) => program.optimizer_keepers(),
            _ => program.keepers(&lines),
        };
        if !keeps.iter().any(collects) && group.sum.blocks >= MIN_ITEMS && traits.kind.is_none() {
            keeps.extend(if traits.is_module { program.hook_keepers() } else { program.cycle_keepers() });
        }
        keeps.retain(|keep| failing.is_possible(keep, group));
        let nobody_trains = if traits.is_module && program.has_grad(&lines) { program.untrained(&lines) } else { None };
        if let Some(module) = nobody_trains {
            untrained.get_or_insert_with(|| (module, Kept::default())).1.add(*stack, group, &traits, (true, 1));
            continue;
        }
        let row = match best_keep(&keeps, group) {
            Some(best) => {
                let key = (best.file.clone(), best.line, best.variable.clone());
                kept.entry(key).or_insert_with(|| Kept { keep: Some(best.clone()), ..Kept::default() })
            }
            None => &mut running,
        };
        let has_grad = row.keep.as_ref().map_or_else(|| program.has_grad(&lines), |keep| keep.has_grad);
        row.add(*stack, group, &traits, (has_grad, failing.forwards_between(group)));
    }
    // The backward pass still needs the graphs of the running pass: only the untrained module is a mistake.
    if untrained.is_some() {
        running.graphs.clear();
    }
    let (module, frozen) = untrained.unzip();
    let rows = kept.into_values().chain([running]).chain(frozen);
    let mut keepers: Vec<KeptByVariable> =
        rows.filter(|row| row.sum.blocks > 0).map(|row| row.report(stacks, all, leaks.kept_graphs.is_some())).collect();
    keepers.sort_by_key(|keeper| Reverse(keeper.bytes)); // stable
    let mut runs = device.phases().runs().iter();
    let trains = program.computes_gradients() || oom.is_in_optimizer() || runs.any(|run| run.phase == Phase::Backward);
    Some(KeptReport {
        complete: true,
        top: TopRows { rows: Vec::new(), rest: all },
        keepers,
        trains: Some(trains),
        untrained: module.into_iter().collect(),
        evaluating: program.evaluated(&failing.lines).into_iter().collect(),
        graph_backward: program.graph_backward().map(|it| stacks.statement_report(it.file, it.line, it.function)),
        ..KeptReport::default()
    })
}

/// The variable that keeps the exception of a request that failed before, and with it what its call made: `group`.
pub(super) fn exception_keeper(device: DeviceStudy<'_, '_>, group: &KeptGroup) -> Option<KeptByVariable> {
    let [keep] = <[Keep; 1]>::try_from(device.text().exception_keepers()).ok()?;
    let sum = BlockSum { bytes: group.bytes, blocks: group.blocks.len() as u64 };
    let name = format!("{}[*].__traceback__", escape_name(&keep.variable));
    let kept = Kept { keep: Some(keep), sum, ..Kept::default() };
    Some(KeptByVariable {
        name: Some(name),
        root: Some(RootKind::Exception),
        share_ratio: group.share_ratio,
        ..kept.report(device.stacks(), sum, false)
    })
}

/// The live blocks before entry `failed`, by stack, the largest groups first, and their sum.
fn live_groups(device: DeviceStudy<'_, '_>, failed: usize) -> (Vec<(StackId, Group)>, BlockSum) {
    let trace = device.device();
    let mut live: FxHashMap<u64, (usize, u64, StackId, usize)> = FxHashMap::default();
    let mut seen: FxHashSet<u64> = FxHashSet::default();
    let mut groups: FxHashMap<StackId, Group> = FxHashMap::default();
    for index in 0..failed {
        let entry = trace.entry(index);
        match entry.action {
            Action::Alloc => {
                let group = groups.entry(entry.extended_stack).or_default();
                live.insert(entry.addr, (index, entry.size, entry.extended_stack, group.made));
                (group.made, group.has_last) = (group.made + 1, true);
                seen.insert(entry.addr);
            }
            Action::FreeRequested | Action::FreeCompleted => {
                seen.insert(entry.addr);
                if let Some((_, bytes, stack, number)) = live.remove(&entry.addr) {
                    let group = groups.entry(stack).or_default();
                    let count = group.made - group.freed;
                    group.has_last &= number + 1 < group.made;
                    if group.has_last && count > 2 && index < failed / 2 {
                        group.full = group.full.max(count);
                    }
                    (group.freed, group.largest_freed) = (group.freed + 1, group.largest_freed.max(bytes));
                }
            }
            _ => {}
        }
    }
    // Live blocks from before the trace.
    let blocks = trace.segments().flat_map(|segment| device.snapshot().blocks_of(segment));
    for block in blocks.filter(|block| block.state == BlockState::ActiveAllocated && !seen.contains(&block.address)) {
        live.insert(block.address, (0, block.size, block.extended_stack, 0));
    }
    let mut all = BlockSum::default();
    for (index, bytes, stack, _) in live.into_values() {
        let group = groups.entry(stack).or_default();
        group.sum = group.sum.plus(BlockSum { bytes, blocks: 1 });
        group.entries.push(index);
        group.largest = group.largest.max(bytes);
        all = all.plus(BlockSum { bytes, blocks: 1 });
    }
    for group in groups.values_mut() {
        group.entries.sort_unstable();
    }
    for line in device.growth().into_iter().flat_map(|growth| &growth.lines) {
        if let Some(group) = groups.get_mut(&trace.entry(line.last_entry).extended_stack) {
            group.grows = true;
        }
    }
    let mut groups: Vec<(StackId, Group)> = groups.into_iter().collect();
    groups.retain(|(_, group)| group.sum.blocks > 0 && ratio(group.sum.bytes, all.bytes) >= MIN_GROUP_RATIO);
    groups.sort_by_key(|(stack, group)| (Reverse(group.sum.bytes), to_u32(stack.index())));
    groups.truncate(MAX_GROUPS);
    (groups, all)
}

/// Facts that the frames of PyTorch show.
struct StackTraits {
    is_package: bool,
    is_module: bool,
    is_backward: bool,
    kind: Option<TensorKind>,
}

impl StackTraits {
    fn new(device: DeviceStudy<'_, '_>, stack: StackId) -> Self {
        let (snapshot, stacks) = (device.snapshot(), device.stacks());
        let line = stacks.line_id(stack);
        let mut traits = Self { is_package: false, is_module: false, is_backward: line.is_backward, kind: None };
        let mut is_inside = true;
        for id in stacks.frames_with_callers(stack) {
            let frame = snapshot.stacks.frame(id);
            let file = forward_slashes(snapshot.text(frame.file));
            match snapshot.text(frame.name) {
                "_call_impl" => (traits.is_module, is_inside) = (true, false),
                _ if stacks.origin(id) == Origin::User => is_inside = false,
                _ if stacks.origin(id) == Origin::Package => traits.is_package = true,
                _ if is_inside && file.contains("/torch/optim/") => traits.kind = Some(TensorKind::OptimizerState),
                "_apply" | "__init__" | "reset_parameters" if is_inside && file.contains("/torch/nn/modules/") => {
                    traits.kind = traits.kind.or(Some(TensorKind::Parameter));
                }
                _ => {}
            }
        }
        traits
    }
}

impl RunningCalls<'_, '_> {
    /// The number of forward passes that have begun.
    fn forwards(&self, entry: usize) -> usize {
        self.device.phases().forwards_begun(entry)
    }

    /// The number of forward passes that have begun since the oldest block of `group`, up to the newest.
    fn forwards_between(&self, group: &Group) -> usize {
        let ends = group.entries.first().zip(group.entries.last());
        ends.map_or(0, |(first, last)| self.forwards(*last) - self.forwards(*first))
    }

    /// Whether `keep` can hold most of `group`: its variable outlives the call, or the running call made the blocks. The
    /// statement cannot hold what it is making now.
    fn is_possible(&self, keep: &Keep, group: &Group) -> bool {
        let blocks = group.entries.len();
        let call = self.lines.iter().position(|line| is_in(keep, line));
        let is_call_over = call.is_none_or(|call| group.made_since(self.since[call].0) * 2 < blocks);
        let is_one = keep.kind == WriteKind::Assign && keep.in_loop && keep.container.is_none();
        // An assigned variable has one value at a time, with the graph of one pass.
        if is_one && group.sum.blocks >= MIN_ITEMS && (!keep.has_grad || self.forwards_between(group) >= MIN_PASSES) {
            return false;
        }
        let is_limited = keep.is_bounded && !group.grows || collects(keep) && group.is_limited();
        if is_limited || keep.local_to.is_some() && is_call_over {
            return false;
        }
        let running = self.lines.iter().position(|line| is_in(keep, line) && line.line == keep.line);
        // In a loop, the same statement may have stored the blocks of earlier passes.
        let is_joined = matches!(keep.kind, WriteKind::Join | WriteKind::Recur) && keep.container.is_none();
        // A list whose items are still being made, not one that exists at once.
        if keep.kind == WriteKind::Assign && keep.container == Some("list") {
            let is_call = keep.value.as_ref().is_some_and(|value| value.starts_with("list("));
            return running.is_some() || group.has_parameters || is_call;
        }
        let is_now = running.is_some_and(|at| {
            let earlier = group
                .entries
                .partition_point(|entry| collects(keep) && self.forwards(*entry) < self.forwards(self.failed));
            group.made_since(self.since[at].1).min(blocks - earlier) * 2 > blocks
        });
        !is_now && (!is_joined || group.is_replaced() || keep.has_grad && group.sum.blocks >= MIN_ITEMS)
    }
}

/// Whether the statement is in the function of `line`.
fn is_in(keep: &Keep, line: &Line<'_>) -> bool {
    line.file == keep.file && line.function == keep.function
}

/// Whether each run of the statement keeps more.
fn collects(keep: &Keep) -> bool {
    let grows = match keep.kind {
        WriteKind::Put | WriteKind::Extend | WriteKind::Store => true,
        // The old value is kept only by the graph.
        WriteKind::Accumulate | WriteKind::Recur => keep.has_grad,
        WriteKind::Join | WriteKind::Assign => matches!(keep.container, Some("lru_cache" | "cycle")),
    };
    grows && (keep.in_loop || keep.local_to.is_none())
}

/// The statement among `keeps`, the nearest first, that explains the number of blocks.
fn best_keep<'k>(keeps: &'k [Keep], group: &Group) -> Option<&'k Keep> {
    let is_collection = group.sum.blocks >= MIN_ITEMS;
    keeps.iter().min_by_key(|keep| match keep.container {
        Some(_) if is_collection && collects(keep) => 0,
        None if is_collection && collects(keep) => 1,
        Some(_) => 2,
        None if keep.local_to.is_none() || keep.function == "<module>" => 3,
        None => 4,
    })
}

impl Kept {
    fn add(&mut self, stack: StackId, group: &Group, traits: &StackTraits, (has_grad, passes): (bool, usize)) {
        self.sum = self.sum.plus(group.sum);
        self.counts.push(group.sum.blocks);
        self.has_package |= traits.is_package;
        if group.sum.bytes > self.largest.0 {
            (self.largest, self.kind) = ((group.sum.bytes, stack), traits.kind);
        }
        if traits.is_module && has_grad {
            self.graphs.push((group.sum.bytes, passes > 0));
        }
    }

    /// The number of items, if it is too small for a collection. That of a collection is unknown: one item may have several
    /// blocks of a stack, and some blocks belong to the running call.
    fn items(&self) -> Option<u64> {
        let most = self.counts.iter().copied().max().unwrap_or(0);
        (most < MIN_ITEMS).then_some(most)
    }

    fn report(self, stacks: &StackReader<'_>, all: BlockSum, grows_by_graphs: bool) -> KeptByVariable {
        let items = self.items();
        let is_tensor = self.counts.len() == 1 && !self.has_package;
        let Self { keep, sum, graphs, kind, largest, .. } = &self;
        let (keep, sum, kind) = (keep.as_ref(), *sum, *kind);
        // Items of a container come from several passes; blocks of the running pass alone are not in it yet.
        let is_filled = keep.is_some_and(|keep| keep.container.is_some()) && items.is_none();
        let kept = graphs.iter().filter(|(_, is_repeated)| !is_filled || *is_repeated);
        let (graph_lines, graph_bytes) = kept.fold((0, 0), |(lines, sum), (bytes, _)| (lines + 1, sum + bytes));
        let records = keep.is_some_and(|keep| keep.has_grad) && grows_by_graphs;
        // A variable has one value: only a graph keeps the others.
        let recurs = keep.filter(|keep| matches!(keep.kind, WriteKind::Accumulate | WriteKind::Recur) && keep.has_grad);
        let is_chain = recurs.is_some() && self.counts.iter().any(|count| *count >= MIN_ITEMS);
        let min_lines = MIN_GRAPH_LINES - usize::from(keep.is_none());
        let is_graph = (graph_lines >= min_lines || records || is_chain) && kind.is_none();
        let graph_bytes = if records || is_chain { sum.bytes } else { graph_bytes };
        let at = keep.map(|keep| stacks.statement_report(&keep.file, keep.line, &keep.function));
        let name = keep.map(|keep| escape_name(&keep.variable));
        let container = keep.and_then(|keep| keep.container).zip(name.clone()).map(|(of, name)| {
            let (name, of) = if of == "queue" { (format!("{name}.queue"), "deque") } else { (name, of) };
            Container { name, r#type: of.to_owned(), items, filled_at: at.clone() }
        });
        KeptByVariable {
            bytes: sum.bytes,
            blocks: sum.blocks,
            share_ratio: ratio(sum.bytes, all.bytes),
            graph_bytes: if is_graph { graph_bytes } else { 0 },
            name,
            kind: kind.or(Some(if is_graph || !graphs.is_empty() { TensorKind::Saved } else { TensorKind::Variable })),
            function: at.filter(|_| keep.is_some_and(|keep| keep.local_to.is_some())),
            container,
            written: keep.filter(|keep| !matches!(keep.container, Some("lru_cache"))).map(|keep| {
                let written = Written::new(keep, stacks);
                // The value is no tensor if it has several.
                Written { value: written.value.filter(|value| is_tensor || is_graph || value.contains('(')), ..written }
            }),
            allocated_by: stacks.location_of(largest.1),
            ..KeptByVariable::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_with_most_bytes_stands_for_a_statement() {
        let mut kept = Kept::default();
        for (stack, bytes, kind) in [(1, 5, None), (2, 7, Some(TensorKind::Gradient)), (3, 7, None)] {
            let group = Group { sum: BlockSum { bytes, blocks: 2 }, ..Group::default() };
            let traits = StackTraits { is_package: stack == 1, is_module: stack > 1, is_backward: false, kind };
            kept.add(StackId(stack), &group, &traits, (stack != 2, stack as usize));
        }
        assert_eq!((kept.largest, kept.kind), ((7, StackId(2)), Some(TensorKind::Gradient)), "the first of two");
        assert_eq!((kept.sum, kept.has_package), (BlockSum { bytes: 19, blocks: 6 }, true));
        assert_eq!((kept.graphs, kept.counts), (vec![(7, true)], vec![2, 2, 2]));
    }
}

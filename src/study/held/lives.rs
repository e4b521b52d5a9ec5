//! One replay of a trace: where every live block of a moment came from and where it went, what became
//! of other blocks of its stack, and what each line held at the end of each step.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::fates::Fates;
use super::leaks::Tracker;
use super::samples::Samples;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::{SeededMap, SeededSet};
use crate::replay::literal::{Tracking, Tiling};
use crate::snapshot::{Action, BlockState, TraceEntry};
use crate::stacks::frames::StackReader;
use crate::stacks::phases::{KnownPurpose, Phase, PhaseRun, Phases, StackTraits};
use crate::study::DeviceStudy;

/// A place in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    /// Index of the entry.
    pub(super) entry: u32,
    /// Which run of one phase, from 1; 0 is before the first.
    pub(super) run: u32,
}

/// A block that the program held.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveBlock {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) requested: u64,
    pub(super) stack: StackId,
    /// The stack with what is known beside it.
    pub(super) made_by: StackId,
    /// `None` when it is older than the recording.
    pub(super) born: Option<Point>,
    /// `None` when it outlived what is seen of it.
    pub(super) freed: Option<Point>,
    /// What the stack that freed it says.
    pub(super) freed_by: StackTraits,
}

impl LiveBlock {
    /// Whether its last reference was one of the program's own code, not of a backward pass.
    pub(super) fn is_freed_by_program(&self) -> bool {
        is_of_program(self.freed_by)
    }
}

/// Whether a stack is of the program's own code, not of a backward pass.
fn is_of_program(signs: StackTraits) -> bool {
    signs.caller.is_some() && signs.phase != Some(Phase::Backward)
}

/// All blocks that the program held at once, by address.
#[derive(Debug)]
pub(super) struct LiveSet {
    /// `None` for the start of the trace.
    pub(super) entry: Option<usize>,
    pub(super) at: Point,
    /// Up to where it is seen what becomes of the blocks: the last allocation, or a failed request. What
    /// is freed after either is given up, not done with.
    pub(super) end: Option<Point>,
    pub(super) blocks: Vec<LiveBlock>,
}

/// Whether parameters of a size were gathered for a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gathered {
    Yes,
    Perhaps,
    No,
}

/// What makes shards equal is at most this part of what is gathered.
const PADDING: u64 = 8;

/// What the replay found out.
pub(super) struct Lives<'a> {
    runs: &'a [PhaseRun],
    phases: &'a Phases,
    /// Of each run, how many backward passes have begun.
    backwards: Vec<u32>,
    /// Whether frees have stacks, so that those of the program's own code are known.
    has_stacks_of_frees: bool,
    /// Of each run, its last allocation so far.
    last_alloc: Vec<u32>,
    pub(super) moments: Vec<LiveSet>,
    /// The blocks of many moments, if they were asked for.
    pub(super) samples: Samples<LiveBlock>,
    /// Of each stack.
    fates: Vec<Fates>,
    /// How many blocks of each requested size outlived the backward pass, by its run, that made them.
    kept_in_run: SeededMap<(u32, u64), u32>,
    /// Bytes that outlived the backward pass, by its run, that made them, and that no backward pass freed.
    left_in_run: FxHashMap<u32, u64>,
    /// The same, whatever freed them.
    kept_in_pass: FxHashMap<u32, u64>,
    /// Of each run, bytes in sizes of parameters that it made, and freed since its last allocation.
    freed_at_end: Vec<u64>,
    /// The most blocks of a requested size that outlived the backward pass that made them.
    pub(super) kept_by_backward: SeededMap<u64, u32>,
    /// Requested sizes of what code made that makes parameters and nothing else, and of parameters that
    /// were gathered.
    pub(super) parameter_sizes: SeededSet<u64>,
    gathered_sizes: BTreeSet<u64>,
    pub(super) leaks: Tracker,
    /// The entry after which what is freed is given up, not done with, if that came to pass.
    given_up: Option<u32>,
}

#[derive(Clone, Copy)]
struct OpenLife {
    stack: StackId,
    made_by: StackId,
    bytes: u64,
    requested: u64,
    born: Option<Point>,
    /// See [`Samples::passed`].
    first_sample: u32,
}

impl OpenLife {
    /// The block at `address`, freed by a stack of these `signs`, if it was.
    fn block(self, address: u64, freed: Option<(Point, StackTraits)>) -> LiveBlock {
        let Self { stack, made_by, bytes, requested, born, .. } = self;
        let freed_by = freed.map(|(_, signs)| signs).unwrap_or_default();
        let freed = freed.map(|(at, _)| at);
        LiveBlock { address, bytes, requested, stack, made_by, born, freed, freed_by }
    }
}

impl<'a> Lives<'a> {
    /// Of a trace of these `phases` in a file of so many `stacks`; nothing is seen yet.
    fn new(phases: &'a Phases, stacks: usize) -> Self {
        let runs = phases.runs();
        let (mut begun, mut last) = (0, Phase::Other);
        let backwards = runs.iter().map(|run| {
            // Optimizers may step in the midst of one.
            begun += u32::from(run.phase == Phase::Backward && last != Phase::Backward);
            last = if run.phase == Phase::Optimizer { last } else { run.phase };
            begun
        });
        Self {
            runs,
            phases,
            has_stacks_of_frees: false,
            backwards: backwards.collect(),
            last_alloc: vec![0; runs.len()],
            moments: Vec::new(),
            samples: Samples::at(Vec::new()),
            fates: vec![Fates::default(); stacks],
            kept_in_run: SeededMap::default(),
            kept_by_backward: SeededMap::default(),
            left_in_run: FxHashMap::default(),
            kept_in_pass: FxHashMap::default(),
            freed_at_end: vec![0; phases.runs().len()],
            given_up: None,
            parameter_sizes: SeededSet::default(),
            gathered_sizes: BTreeSet::new(),
            leaks: Tracker::of(stacks),
        }
    }

    /// Replays `device`'s trace and stops to look after each entry of `wanted` (`None`: before the first). The blocks
    /// of the moments that `samples` is of are kept as well.
    pub(super) fn of(
        device: DeviceStudy<'a, '_>,
        mut wanted: Vec<Option<usize>>,
        samples: Samples<LiveBlock>,
    ) -> Self {
        let (stacks, phases) = (device.stacks(), device.phases());
        let mut lives = Self::new(phases, device.snapshot().stacks.len());
        lives.samples = samples;
        let mut live: SeededMap<u64, OpenLife> = SeededMap::default();
        // Blocks of moments that are past, to see where they go.
        let mut awaited: SeededMap<u64, Vec<(usize, usize)>> = SeededMap::default();
        let mut at = Point { entry: 0, run: 0 };
        wanted.sort_unstable();
        wanted.dedup();
        let mut wanted = wanted.into_iter().peekable();
        let last_alloc = device.device().with_action(Action::Alloc).next_back();
        let mut ends = phases.step_ends().iter().copied().peekable();
        device.follow(Tracking::Totals, |step| {
            if let Some((index, entry)) = step.entry {
                at.entry = to_u32(index);
                lives.samples.pass(index);
                if phases.runs().get(at.run as usize).is_some_and(|next| next.start <= at.entry) {
                    at.run += 1;
                }
                lives.apply(stacks, &entry, at, step.tiling, &mut live, &mut awaited);
                if ends.next_if(|end| *end == at.entry + 1).is_some() {
                    lives.leaks.end_step(step.tiling.totals().allocated);
                }
            } else {
                live = lives.start(stacks, step.tiling);
            }
            let entry = step.entry.map(|(index, _)| index);
            if wanted.next_if_eq(&entry).is_some() {
                let moment =
                    LiveSet { entry, at, end: None, blocks: blocks(stacks, step.tiling, &live) };
                let number = lives.moments.len();
                for (place, block) in moment.blocks.iter().enumerate() {
                    awaited.entry(block.address).or_default().push((number, place));
                }
                lives.moments.push(moment);
            }
            if step.entry.is_some_and(|(index, entry)| {
                entry.action == Action::Oom || last_alloc.is_none_or(|last| last <= index)
            }) {
                lives.given_up = Some(at.entry);
                lives.close_moments(at);
            }
        });
        lives.close(live.values(), at);
        lives.samples.close();
        for (address, one) in live {
            lives.samples.gone(one.first_sample, || one.block(address, None));
        }
        lives
    }

    /// The blocks that the program holds before the first entry.
    fn start(&mut self, stacks: &StackReader<'_>, tiling: &Tiling) -> SeededMap<u64, OpenLife> {
        let mut held = SeededMap::default();
        for (address, bytes, requested, state, made_by) in tiling.active_blocks() {
            if state == BlockState::ActiveAllocated {
                let stack = stacks.recorded_stack(made_by);
                held.insert(
                    address,
                    OpenLife { stack, made_by, bytes, requested, born: None, first_sample: 0 },
                );
            }
        }
        let mut by_address: Vec<(&u64, &OpenLife)> = held.iter().collect();
        by_address.sort_unstable_by_key(|(address, _)| **address);
        for (_, one) in by_address {
            self.leaks.add_older(stacks, one.made_by, one.bytes);
        }
        held
    }

    /// The trace has come to its end, with these blocks live.
    fn close<'l>(&mut self, live: impl Iterator<Item = &'l OpenLife>, at: Point) {
        for one in live {
            // What is still there after the next pass is no gradient.
            if let Some(born) = one.born
                && self.backwards(born) == self.backwards(at)
            {
                self.count_kept(*one, born, at, false);
            }
        }
        for ((_, requested), blocks) in self.kept_in_run.drain() {
            let most = self.kept_by_backward.entry(requested).or_default();
            *most = blocks.max(*most);
        }
    }

    fn apply(
        &mut self,
        stacks: &StackReader<'_>,
        event: &TraceEntry,
        at: Point,
        tiling: &Tiling,
        live: &mut SeededMap<u64, OpenLife>,
        awaited: &mut SeededMap<u64, Vec<(usize, usize)>>,
    ) {
        match event.action {
            Action::Alloc => {
                let Some((bytes, BlockState::ActiveAllocated)) = tiling.block_at(event.addr) else {
                    return;
                };
                let run = (at.run as usize).checked_sub(1);
                if let Some(run) = run
                    && let (Some(last), Some(freed)) =
                        (self.last_alloc.get_mut(run), self.freed_at_end.get_mut(run))
                {
                    (*last, *freed) = (at.entry, 0);
                }
                let (stack, requested) = (event.stack, event.size);
                let made_by = event.made_by;
                let (born, first_sample) = (Some(at), self.samples.next());
                let new = OpenLife { stack, made_by, bytes, requested, born, first_sample };
                match self.phases.stack_traits(stack).purpose {
                    Some(KnownPurpose::Parameters) => _ = self.parameter_sizes.insert(requested),
                    Some(KnownPurpose::GatheredParameters) => _ = self.gathered_sizes.insert(requested),
                    _ => {}
                }
                self.leaks.add(stacks, made_by, bytes);
                if let Some(lost) = live.insert(event.addr, new) {
                    self.leaks.take(stacks, lost.made_by, lost.bytes);
                    self.samples.gone(lost.first_sample, || lost.block(event.addr, None));
                }
            }
            Action::FreeRequested | Action::FreeCompleted => {
                let Some(gone) = live.remove(&event.addr) else { return };
                let signs = self.phases.stack_traits(event.stack);
                self.has_stacks_of_frees |= signs.caller.is_some();
                let by_program = is_of_program(signs);
                let freed = Some((at, signs));
                self.samples.gone(gone.first_sample, || gone.block(event.addr, freed));
                if let Some(born) = gone.born {
                    self.leaks.take(stacks, gone.made_by, gone.bytes);
                    self.record_fate(gone, born, at, by_program);
                } else {
                    self.leaks.take_older(stacks, gone.made_by, gone.bytes);
                }
                for (moment, place) in awaited.remove(&event.addr).unwrap_or_default() {
                    let moment = &mut self.moments[moment];
                    if moment.end.is_none() {
                        let block = &mut moment.blocks[place];
                        block.freed = Some(at);
                        block.freed_by = signs;
                    }
                }
            }
            _ => {}
        }
    }

    fn close_moments(&mut self, at: Point) {
        for moment in &mut self.moments {
            moment.end = moment.end.or(Some(at));
        }
    }

    fn record_fate(&mut self, block: OpenLife, born: Point, freed: Point, by_program: bool) {
        if self.given_up.is_some_and(|since| born.entry <= since) {
            return;
        }
        self.count_kept(block, born, freed, by_program);
        let passes = self.backwards(freed).saturating_sub(self.backwards(born));
        let no_backward = passes == 0;
        let in_backward = self.phase(freed) == Phase::Backward && !by_program;
        let fates = &mut self.fates[block.stack.index()];
        match () {
            () if born.run == freed.run => {
                fates.in_run += 1;
                let run = (born.run as usize).checked_sub(1);
                let run = run.filter(|_| self.parameter_sizes.contains(&block.requested));
                if let Some(freed) = run.and_then(|run| self.freed_at_end.get_mut(run)) {
                    *freed = freed.saturating_add(block.requested);
                }
            }
            () if no_backward => fates.before_backward += 1,
            () => {
                fates.after += 1;
                fates.in_backward += u32::from(in_backward);
            }
        }
        fates.most_passes = fates.most_passes.max(passes);
        if no_backward {
            fates.longest_early = fates.longest_early.max(freed.entry - born.entry);
        }
    }

    /// Counts `block` if it was still there at `end`, after the backward pass that made it.
    fn count_kept(&mut self, block: OpenLife, born: Point, end: Point, by_program: bool) {
        if self.phase(born) == Phase::Backward && (born.run != end.run || by_program) {
            *self.kept_in_run.entry((born.run, block.requested)).or_default() += 1;
            let kept = self.kept_in_pass.entry(born.run).or_default();
            *kept = kept.saturating_add(block.requested);
            if by_program || self.phase(end) != Phase::Backward {
                let left = self.left_in_run.entry(born.run).or_default();
                *left = left.saturating_add(block.requested);
            }
        }
    }

    pub(super) fn fates(&self, stack: StackId) -> Fates {
        self.fates[stack.index()]
    }

    /// The place of entry `entry`.
    pub(super) fn point(&self, entry: usize) -> Point {
        let run = self.runs.partition_point(|run| run.start as usize <= entry);
        Point { entry: to_u32(entry), run: to_u32(run) }
    }

    pub(super) fn phase(&self, point: Point) -> Phase {
        let run = (point.run as usize).checked_sub(1).and_then(|run| self.runs.get(run));
        run.map_or(Phase::Other, |run| run.phase)
    }

    /// Whether nothing shows that the run of `point` was still going on: it allocated nothing more.
    pub(super) fn may_be_over(&self, point: Point) -> bool {
        !self.has_stacks_of_frees && self.is_after_last_allocation(point)
    }

    /// Whether a backward pass was recorded.
    pub(super) fn has_backward(&self) -> bool {
        self.backwards.last().is_some_and(|passes| *passes > 0)
    }

    /// The most bytes that a backward pass left for the optimizer, or for whatever came after it.
    pub(super) fn most_left(&self) -> u64 {
        self.left_in_run.values().copied().max().unwrap_or(0)
    }

    /// Whether a parameter of `bytes`, in its full precision or in half of it, may have been gathered for a pass: in
    /// memory as large, or larger by the rows that make all shards equal.
    pub(super) fn may_be_gathered(&self, bytes: u64) -> Gathered {
        let most = bytes.saturating_add(bytes / PADDING);
        let is_parameter =
            |bytes: Option<u64>| bytes.is_some_and(|bytes| self.parameter_sizes.contains(&bytes));
        match self.gathered_sizes.range(bytes..=most).next() {
            Some(size) if *size == bytes => Gathered::Yes,
            Some(_) if is_parameter(Some(bytes)) || is_parameter(bytes.checked_mul(2)) => {
                Gathered::Yes
            }
            Some(_) => Gathered::Perhaps,
            None => Gathered::No,
        }
    }

    /// Bytes that outlived the backward pass of run `run`, which made them.
    pub(super) fn kept_in_pass(&self, run: u32) -> u64 {
        self.kept_in_pass.get(&run).copied().unwrap_or(0)
    }

    /// Bytes in sizes of parameters that run `run` made, and freed when it allocated nothing more.
    pub(super) fn freed_at_end(&self, run: u32) -> u64 {
        let run = (run as usize).checked_sub(1).and_then(|run| self.freed_at_end.get(run));
        run.copied().unwrap_or(0)
    }

    /// Whether the run of `point` allocated nothing more.
    pub(super) fn is_after_last_allocation(&self, point: Point) -> bool {
        let run = (point.run as usize).checked_sub(1).and_then(|run| self.last_alloc.get(run));
        run.is_some_and(|last| *last < point.entry)
    }

    /// Whether a backward pass was recorded to its end.
    pub(super) fn ends_backward(&self) -> bool {
        let before = self.runs.len().saturating_sub(1);
        self.backwards.get(..before).is_some_and(|passes| passes.last().is_some_and(|n| *n > 0))
    }

    /// How many backward passes have begun before entry `entry`.
    pub(super) fn backwards_until(&self, entry: usize) -> u32 {
        let run = self.runs.partition_point(|run| (run.start as usize) < entry);
        self.backwards(Point { entry: to_u32(entry), run: to_u32(run) })
    }

    /// How many backward passes have begun.
    pub(super) fn backwards(&self, point: Point) -> u32 {
        let run = (point.run as usize).checked_sub(1).and_then(|run| self.backwards.get(run));
        run.copied().unwrap_or(0)
    }
}

/// The allocated blocks of `tiling`, by address.
fn blocks(
    stacks: &StackReader<'_>,
    tiling: &Tiling,
    live: &SeededMap<u64, OpenLife>,
) -> Vec<LiveBlock> {
    let mut blocks: Vec<LiveBlock> = tiling
        .active_blocks()
        .filter(|(.., state, _)| *state == BlockState::ActiveAllocated)
        .map(|(address, bytes, requested, _, made_by)| {
            let stack = stacks.recorded_stack(made_by);
            let open = live.get(&address).copied();
            let unknown =
                OpenLife { stack, made_by, bytes, requested, born: None, first_sample: 0 };
            let born = open.and_then(|open| open.born);
            OpenLife { born, ..unknown }.block(address, None)
        })
        .collect();
    blocks.sort_unstable_by_key(|block| block.address);
    blocks
}

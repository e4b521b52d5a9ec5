//! When each block of a checkpointed module goes and comes back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::modules::ModuleCall;
use super::passes::Pass;
use crate::base::ids::StackId;
use crate::replay::calls::{Op, Script, What};

/// A call that keeps fewer blocks than this keeps a cache, where no backward pass shows what is for it.
const FEW: usize = 4;
/// What a module returns is no smaller than this part of the largest that it keeps.
const PART: u64 = 16;

/// Acts that are put before or after a call.
type Inserted = FxHashMap<u32, Vec<Op>>;

/// What checkpointing a module changes.
pub(super) struct Recompute<'p> {
    base: &'p Script,
    /// With the blocks that come back.
    script: Script,
    before: Inserted,
    after: Inserted,
    /// Blocks that are freed when their call ends.
    pub(super) early: FxHashSet<u32>,
    /// The blocks that come in the place of these.
    again: FxHashMap<u32, u32>,
    /// Blocks that are freed later than recorded.
    kept: FxHashSet<u32>,
    /// What a call is known to keep for the backward pass: its stacks, and the how many-th of each.
    places: FxHashSet<(StackId, u32)>,
    /// Whether no backward pass was recorded, and what is kept for it is taken to be what outlives the call.
    pub(super) is_guess: bool,
}

impl<'p> Recompute<'p> {
    pub(super) fn new(base: &'p Script, passes: &[Pass]) -> Self {
        Self {
            base,
            script: base.clone(),
            before: Inserted::default(),
            after: Inserted::default(),
            early: FxHashSet::default(),
            again: FxHashMap::default(),
            kept: FxHashSet::default(),
            places: FxHashSet::default(),
            is_guess: passes.iter().all(|pass| pass.is_cut),
        }
    }

    /// The program with all that was added.
    pub(super) fn script(mut self) -> Script {
        let mut acts = Vec::with_capacity(self.base.acts.len());
        for act in &self.base.acts {
            acts.extend(self.before.remove(&act.like).into_iter().flatten());
            match act.what {
                What::Free { block, .. } if self.kept.contains(&block) => {}
                What::Free { block, is_moved } => {
                    let block = self.again.get(&block).copied().unwrap_or(block);
                    acts.push(Op { what: What::Free { block, is_moved }, ..*act });
                }
                _ => acts.push(*act),
            }
            acts.extend(self.after.remove(&act.like).into_iter().flatten());
        }
        Script { acts, ..self.script }
    }

    /// A `call` of the module in `pass`, the one before it, and what the next one asks for, if there is one.
    pub(super) fn add(
        &mut self,
        pass: &Pass,
        previous: Option<&ModuleCall>,
        call: &ModuleCall,
        next: Option<&[u32]>,
    ) {
        let base = self.base;
        let asked = |block: u32| base.blocks[block as usize].asked.unwrap_or(0);
        let freed = |block: u32| base.blocks[block as usize].freed.unwrap_or(u32::MAX);
        // Of a pass that is cut off, what was kept in others is kept.
        let waits: FxHashSet<u32> =
            if pass.is_cut { self.waiting(call).collect() } else { FxHashSet::default() };
        if pass.is_cut && !call.blocks.iter().any(|b| pass.backward.contains(&freed(*b))) {
            return self.add_open(call);
        }
        let is_kept = |b: u32| pass.backward.contains(&freed(b)) || waits.contains(&b);
        let Some(last) = call.blocks.last().map(|block| asked(*block)) else { return };
        let mut own: Vec<u32> =
            call.blocks.iter().copied().filter(|block| is_kept(*block)).map(freed).collect();
        own.sort_unstable();
        let Some(middle) = own.get(own.len() / 2) else { return };
        // Up to where the backward pass is of what comes after this call. What the program itself frees when all of it
        // is over says nothing.
        let later = |block: &u32| is_kept(*block) && freed(*block) < *middle;
        let turn = match next {
            Some(blocks) => blocks.iter().copied().filter(later).map(freed).max(),
            None => self.rest(last, pass).filter(later).map(freed).max(),
        };
        let mut turn = after_frees(base, turn.unwrap_or(pass.backward.start));
        // What the call returns goes on to what comes after it: some of its own is freed there.
        let end = after_frees(base, last) + 1;
        let is_returned = |block: &u32| {
            is_kept(*block) && freed(*block) <= turn
                || (end + 1..pass.backward.start).contains(&freed(*block))
        };
        if !call.blocks.iter().any(is_returned) {
            turn = after_frees(base, own[0]);
        }
        let inner: Vec<u32> =
            call.blocks.iter().copied().filter(|b| is_kept(*b) && freed(*b) > turn).collect();
        let Some(stop) = inner.last().map(|block| asked(*block)) else { return };
        self.before.entry(end).or_default().extend(inner.iter().map(|b| free_at(last, *b)));
        let kept: FxHashSet<u32> = inner.iter().copied().collect();
        let of_kept = places(base, call).filter(|(block, _)| kept.contains(block));
        self.places.extend(of_kept.map(|(_, place)| place));
        self.early.extend(kept);
        // The forward pass once more, up to the last of what is kept.
        let made_again = self.after.entry(turn).or_default();
        let mut left: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        for block in call.blocks.iter().copied().filter(|block| asked(*block) <= stop) {
            let at = asked(block);
            while let Some(Reverse((_, block))) =
                left.peek().copied().filter(|Reverse((end, _))| *end < at)
            {
                left.pop();
                made_again.push(free_at(turn, block));
            }
            let new = self.script.add_like(block);
            made_again.push(Op { like: at, what: What::Ask(new) });
            if is_kept(block) && freed(block) > turn {
                self.again.insert(block, new);
            } else {
                left.push(Reverse((freed(block), new)));
            }
        }
        let left = left.into_sorted_vec().into_iter().rev();
        made_again.extend(left.map(|Reverse((_, block))| free_at(turn, block)));
        // The input is kept until the last of what is made again from it is gone.
        let begins = call.blocks.first().map(|block| asked(*block)).unwrap_or_default();
        if let (Some(before), Some(until)) = (previous, inner.iter().map(|b| freed(*b)).max()) {
            for input in before.blocks.iter().copied() {
                if (begins..pass.backward.start).contains(&freed(input)) {
                    self.kept.insert(input);
                    self.after.entry(until).or_default().push(free_at(until, input));
                }
            }
        }
    }

    /// What is asked for after call `last` in the forward pass of `pass`.
    fn rest(&self, last: u32, pass: &Pass) -> impl Iterator<Item = u32> + '_ {
        let acts = self.base.acts.get(last as usize + 1..pass.forward.end as usize);
        acts.unwrap_or_default().iter().filter_map(|act| match act.what {
            What::Ask(block) => Some(block),
            _ => None,
        })
    }

    /// What a `call` keeps that is not freed, as far as others tell.
    fn waiting<'c>(&'c self, call: &'c ModuleCall) -> impl Iterator<Item = u32> + 'c {
        places(self.base, call).filter_map(|(block, place)| {
            let one = &self.base.blocks[block as usize];
            let waits = one.freed.is_none() && !one.is_failed;
            (waits && (self.is_guess || self.places.contains(&place))).then_some(block)
        })
    }

    /// A `call` of a forward pass in which the recording ends: what it would have kept is freed when it ends.
    pub(super) fn add_open(&mut self, call: &ModuleCall) {
        let base = self.base;
        let one = |block: u32| &base.blocks[block as usize];
        let Some(last) = call.blocks.last().and_then(|block| one(*block).asked) else { return };
        let end = after_frees(base, last) + 1;
        let mut kept: Vec<u32> = Vec::new();
        for (block, place) in places(base, call) {
            let outlives = one(block).freed.is_none_or(|freed| freed > end);
            let is_for_backward = self.is_guess || self.places.contains(&place);
            if outlives && is_for_backward && !one(block).is_failed {
                kept.push(block);
            }
        }
        if self.is_guess {
            // The last that is no statistic of others is what it returns.
            let largest = kept.iter().map(|block| one(*block).bytes).max().unwrap_or(0);
            if let Some(at) = kept.iter().rposition(|block| one(*block).bytes >= largest / PART) {
                kept.remove(at);
            }
            if kept.len() < FEW {
                return;
            }
        }
        self.before.entry(end).or_default().extend(kept.iter().map(|b| free_at(last, *b)));
        self.early.extend(kept);
    }
}

/// The blocks of `call`, with their stacks, and the how many-th of its stack each is.
fn places<'c>(
    base: &'c Script,
    call: &'c ModuleCall,
) -> impl Iterator<Item = (u32, (StackId, u32))> + 'c {
    let mut seen: FxHashMap<StackId, u32> = FxHashMap::default();
    call.blocks.iter().map(move |block| {
        let stack = base.blocks[*block as usize].stack;
        let nth = seen.entry(stack).or_default();
        *nth += 1;
        (*block, (stack, *nth))
    })
}

/// The last of the frees that follow `call` at once; `call` where none do.
fn after_frees(base: &Script, mut call: u32) -> u32 {
    let is_free = |act: &Op| matches!(act.what, What::Free { .. });
    while base.acts.get(call as usize + 1).is_some_and(is_free) {
        call += 1;
    }
    call
}

fn free_at(call: u32, block: u32) -> Op {
    Op { like: call, what: What::Free { block, is_moved: true } }
}

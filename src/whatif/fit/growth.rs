//! Which lines the memory at the peak is of, and how they grow.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::law::{Law, LawKind};
use super::learned::Learned;
use super::size::{Numbers, Size};
use crate::allocator::conf::Settings;
use crate::allocator::round_size;
use crate::base::ids::StackId;
use crate::base::units::{signed_difference, ratio};
use crate::replay::ops::{OperationKind, Program};
use crate::snapshot::BlockState;
use crate::stacks::frames::{CodeLocation, FrameList, LineId};

/// A line that holds memory at the peak.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GrowingLine {
    /// What it holds at the peak, at the size of [`super::FitDevice::growth_at`].
    pub bytes: u64,
    /// Of all bytes at that peak.
    pub share_ratio: f64,
    /// What it would hold more at the next size: with one more of the first number.
    pub bytes_per_unit: i64,
    /// How it grows with that, for the most part.
    pub law: LawKind,
    /// With one more of the second number, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_bytes_per_unit: Option<i64>,
    /// How it grows with that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_law: Option<LawKind>,
    /// The stack of the line that most of that is of, innermost first.
    pub frames: FrameList,
    /// The line.
    #[serde(flatten)]
    pub location: CodeLocation,
}

/// A block that is there at the peak.
#[derive(Debug, Clone, Copy)]
struct AtPeak {
    bytes: u64,
    stack: StackId,
    /// As it was learned; `None` of what has no partner.
    law: Option<Law>,
    /// Of a request, its row.
    row: Option<usize>,
}

/// The memory at the peak, at one size.
#[derive(Debug)]
pub(super) struct PeakMemory {
    size: Size,
    /// How many requests have been made.
    made: usize,
    blocks: Vec<AtPeak>,
}

/// What a program holds after some of its calls.
struct Walk {
    slots: Vec<Option<AtPeak>>,
    /// Requests made.
    asked: usize,
}

/// Follows `program`, which begins with blocks in its first slots. After each call that leaves more allocated, `see` is
/// shown its index, how many bytes are, and what they are; it says whether to go on.
fn walk(
    program: &Program<'_>,
    begins_with: &[AtPeak],
    block_of: &impl Fn(usize, u64, StackId, Option<u32>) -> AtPeak,
    mut see: impl FnMut(usize, u64, &Walk) -> bool,
) {
    let mut state = Walk { slots: vec![None; program.slot_count], asked: 0 };
    let mut now = 0u64;
    for (slot, block) in state.slots.iter_mut().zip(begins_with) {
        now = now.saturating_add(block.bytes);
        *slot = Some(*block);
    }
    for (index, operation) in program.operations.iter().enumerate() {
        match operation.kind {
            OperationKind::Alloc { size, context, slot, .. } => {
                let block = block_of(state.asked, size, context, slot);
                state.asked += 1;
                let place = slot.and_then(|slot| state.slots.get_mut(slot as usize));
                // One that failed was never held.
                let Some(place) = place else { continue };
                *place = Some(block);
                now = now.saturating_add(block.bytes);
                if !see(index, now, &state) {
                    return;
                }
            }
            OperationKind::Free { slot, .. } => {
                let freed = state.slots.get_mut(slot as usize).and_then(Option::take);
                now = now.saturating_sub(freed.map_or(0, |block| block.bytes));
            }
            _ => {}
        }
    }
}

impl PeakMemory {
    /// At size `n`, with requests rounded as under `settings`.
    pub(super) fn at(learned: &Learned<'_, '_, '_>, n: Size, settings: &Settings) -> Self {
        let program = learned.program_at(n);
        // Where what was held before is laid out anew, it is asked for first.
        let asked_anew = if program.initial_blocks.is_empty() { learned.held.len() } else { 0 };
        let contexts = learned.base.program().initial_blocks.iter().map(|resident| resident.context);
        let held: Vec<AtPeak> = contexts
            .zip(&learned.held)
            .zip(learned.base.program().initial_blocks.iter())
            .map(|((stack, law), resident)| {
                let bytes = match (law, resident.state) {
                    (_, BlockState::ActivePendingFree) => 0,
                    (Some(law), _) => round_size(law.at(n.numbers()), settings),
                    (None, _) => resident.size,
                };
                AtPeak { bytes, stack, law: *law, row: None }
            })
            .collect();
        let begins_with = if asked_anew == 0 { held.as_slice() } else { &[] };
        let block_of = |asked: usize, bytes: u64, stack: StackId, slot: Option<u32>| {
            let row = asked.checked_sub(asked_anew);
            let law = match row {
                Some(row) => learned.requests.get(row).copied().flatten(),
                None => slot.and_then(|slot| held.get(slot as usize)).and_then(|block| block.law),
            };
            AtPeak { bytes: round_size(bytes, settings), stack, law, row }
        };
        // First when it is, then what is there then.
        let before = begins_with.iter().fold(0, |sum: u64, block| sum.saturating_add(block.bytes));
        let (mut most, mut at_most) = (before, 0);
        walk(&program, begins_with, &block_of, |operation, now, _| {
            if now > most {
                (most, at_most) = (now, operation + 1);
            }
            true
        });
        let (mut blocks, mut made) = (begins_with.to_vec(), 0);
        walk(&program, begins_with, &block_of, |operation, _, state| {
            if operation + 1 < at_most {
                return true;
            }
            if operation + 1 == at_most {
                blocks = state.slots.iter().flatten().copied().collect();
                made = state.asked.saturating_sub(asked_anew);
            }
            false
        });
        Self { size: n, made, blocks }
    }

    /// All of its bytes.
    pub(super) fn all(&self) -> u64 {
        self.blocks.iter().fold(0, |sum, block| sum.saturating_add(block.bytes))
    }

    /// The share of its bytes whose growth is known.
    pub(super) fn paired_ratio(&self) -> f64 {
        let paired = self.blocks.iter().filter(|block| block.law.is_some());
        let bytes = paired.fold(0u64, |sum, block| sum.saturating_add(block.bytes));
        if self.blocks.is_empty() { 1.0 } else { ratio(bytes, self.all()) }
    }

    /// The same of the bytes that were asked for with a stack.
    pub(super) fn stacks_paired_ratio(&self, learned: &Learned<'_, '_, '_>) -> f64 {
        let stacks = &learned.base.device.snapshot().stacks;
        let (mut all, mut paired) = (0u64, 0u64);
        for block in self.blocks.iter().filter(|block| !stacks.frames(block.stack).is_empty()) {
            all = all.saturating_add(block.bytes);
            paired = paired.saturating_add(block.law.map_or(0, |_| block.bytes));
        }
        if all == 0 { 1.0 } else { ratio(paired, all) }
    }

    /// The share of its bytes that another recording had freed by then: the two do not keep the same.
    pub(super) fn freed_elsewhere_ratio(&self, learned: &Learned<'_, '_, '_>) -> f64 {
        let freed = learned.others.iter().map(|(other, partners)| {
            // The same moment there: after the partner of the last request that has one.
            let made = partners.requests.iter().take(self.made).rev().flatten().next();
            let made = made.map_or(0, |last| *last as usize + 1);
            let is_freed = |block: &&AtPeak| {
                let partner = block.row.and_then(|row| *partners.requests.get(row)?);
                let partner = partner.and_then(|partner| other.requests.get(partner as usize));
                partner.and_then(|partner| partner.freed).is_some_and(|freed| freed < made)
            };
            let blocks = self.blocks.iter().filter(is_freed);
            blocks.fold(0u64, |sum, block| sum.saturating_add(block.bytes))
        });
        ratio(freed.max().unwrap_or(0), self.all())
    }

    /// The share of its bytes whose law is of the most that any step asks for.
    pub(super) fn varying_ratio(&self, learned: &Learned<'_, '_, '_>) -> f64 {
        let is_varied = |block: &&AtPeak| block.row.is_some_and(|row| learned.varies[row]);
        let varied = self.blocks.iter().filter(is_varied);
        let bytes = varied.fold(0u64, |sum, block| sum.saturating_add(block.bytes));
        ratio(bytes, self.all())
    }

    /// The share of its bytes that would be fewer at a larger size: of recordings of one program, none.
    pub(super) fn shrinking_ratio(&self) -> f64 {
        let is_shrink = |block: &&AtPeak| {
            let is_less =
                |law: Law| self.doubled().any(|n| law.at(n) < law.at(self.size.numbers()));
            block.law.is_some_and(is_less)
        };
        let shrinking = self.blocks.iter().filter(is_shrink);
        let bytes = shrinking.fold(0u64, |sum, block| sum.saturating_add(block.bytes));
        ratio(bytes, self.all())
    }

    /// Twice the size, by each of its numbers.
    fn doubled(&self) -> impl Iterator<Item = Numbers> {
        let size = self.size;
        let of = move |variable| size.changed(variable, |n| n.saturating_mul(2)).numbers();
        (0..size.variables()).map(of)
    }

    /// Whether all of it would be less at twice a number of the size.
    pub(super) fn falls(&self) -> bool {
        let at = |n: Numbers| {
            let bytes =
                self.blocks.iter().map(|block| block.law.map_or(block.bytes, |law| law.at(n)));
            bytes.fold(0, u64::saturating_add)
        };
        self.doubled().any(|n| at(n) < at(self.size.numbers()))
    }

    /// The `top` lines with most bytes of which nothing is known.
    pub(super) fn unpaired(&self, learned: &Learned<'_, '_, '_>, top: usize) -> Vec<GrowingLine> {
        self.lines(learned, top, |block| block.law.is_none())
    }

    /// The `top` lines that grow most.
    pub(super) fn growth(&self, learned: &Learned<'_, '_, '_>, top: usize) -> Vec<GrowingLine> {
        self.lines(learned, top, |block| block.law.is_some())
    }

    fn lines(
        &self,
        learned: &Learned<'_, '_, '_>,
        top: usize,
        is_wanted: impl Fn(&AtPeak) -> bool,
    ) -> Vec<GrowingLine> {
        #[derive(Default)]
        struct Line {
            bytes: u64,
            /// What it holds more with one more of each number, and by how it grows with that.
            next: [(u64, [u64; LawKind::ALL.len()]); 2],
            /// By the stack.
            most: FxHashMap<StackId, u64>,
        }
        let stacks = learned.base.device.stacks();
        let mut names: FxHashMap<StackId, LineId> = FxHashMap::default();
        let mut lines: FxHashMap<LineId, Line> = FxHashMap::default();
        for block in self.blocks.iter().filter(|block| is_wanted(block)) {
            let name = *names.entry(block.stack).or_insert_with(|| stacks.line_id(block.stack));
            let line = lines.entry(name).or_default();
            line.bytes = line.bytes.saturating_add(block.bytes);
            for variable in 0..self.size.variables() {
                let (next, by_law) = &mut line.next[variable];
                let kind = block.law.map_or(LawKind::Constant, |law| law.kind(variable));
                let of_law = LawKind::ALL.iter().position(|known| *known == kind).unwrap_or(0);
                let more = self.size.changed(variable, |n| n.saturating_add(1)).numbers();
                let grown = block
                    .law
                    .map_or(0, |law| law.at(more).saturating_sub(law.at(self.size.numbers())));
                *next = next.saturating_add(grown);
                *line.most.entry(block.stack).or_default() += grown.max(1);
                // What does not grow says how only where nothing does.
                by_law[of_law] = by_law[of_law].saturating_add(grown.max(1));
            }
        }
        let all = self.all();
        let mut rows: Vec<(LineId, Line)> = lines.into_iter().collect();
        rows.sort_by_key(|(name, line)| {
            (line.next.map(|(next, _)| Reverse(next)), Reverse(line.bytes), *name)
        });
        rows.truncate(top);
        let told = rows.into_iter().map(|(name, line)| {
            let stack = line.most.iter().max_by_key(|(stack, grown)| (**grown, Reverse(**stack)));
            let [(next, law), (second_next, second_law)] = line.next.map(|(next, by_law)| {
                let most = LawKind::ALL.iter().zip(by_law).rev().max_by_key(|(_, bytes)| *bytes);
                (signed_difference(0, next), most.map_or(LawKind::Constant, |(kind, _)| *kind))
            });
            let of_second = self.size.second;
            GrowingLine {
                bytes: line.bytes,
                share_ratio: ratio(line.bytes, all),
                bytes_per_unit: next,
                law,
                second_bytes_per_unit: of_second.map(|_| second_next),
                second_law: of_second.map(|_| second_law),
                frames: stack.map_or_else(FrameList::default, |(stack, _)| stacks.frame_list(*stack)),
                location: stacks.code_location(name),
            }
        });
        told.collect()
    }
}

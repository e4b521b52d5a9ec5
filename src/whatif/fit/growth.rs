//! The source lines that hold the memory at the peak, and how they grow.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::law::{Law, LawKind};
use crate::allocator::conf::Settings;
use crate::allocator::device::GpuModel;
use crate::allocator::round_size;
use crate::base::ids::StackId;
use crate::base::units::{ratio, signed_difference};
use crate::replay::ops::ScriptOpKind;
use crate::snapshot::BlockState;
use crate::stacks::frames::{CodeLocation, FrameList, LineId};

/// Source lines that are listed, at most.
const MAX_LINES: usize = 10;

/// A source line that holds memory at the peak.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GrowingLine {
    /// Bytes that it holds at the peak, at the size `growth_at`.
    pub bytes: u64,
    /// `bytes` as a share of all bytes at that peak.
    pub share_ratio: f64,
    /// Additional bytes if the size is larger by 1.
    pub bytes_per_unit: i64,
    /// How most of the growing bytes grow with the size.
    pub law: LawKind,
    /// The stack of the line that grows most, innermost frame first.
    #[serde(flatten)]
    pub frames: FrameList,
    /// The line.
    #[serde(flatten)]
    pub location: CodeLocation,
}

/// A block that is live at the peak.
#[derive(Debug, Clone, Copy)]
struct PeakBlock {
    bytes: u64,
    stack: StackId,
    /// `None` if it is unpaired.
    law: Option<Law>,
    /// The index of its request; `None` for a block from before the recording.
    index: Option<usize>,
}

/// The live blocks at the peak, at one size.
#[derive(Debug)]
pub(super) struct PeakMemory {
    size: u64,
    /// Number of requests made before the peak.
    requests_made: usize,
    blocks: Vec<PeakBlock>,
}

fn sum_bytes<'b>(blocks: impl Iterator<Item = &'b PeakBlock>) -> u64 {
    blocks.fold(0, |sum, block| sum.saturating_add(block.bytes))
}

impl PeakMemory {
    /// The peak of the program at `size`, with requests rounded as under `settings`.
    pub(super) fn from_program(
        fitted: &FittedProgram<'_, '_, '_>,
        size: u64,
        settings: &Settings,
        gpu: Option<&GpuModel>,
    ) -> Self {
        let (recorded, script) = (&fitted.base.script, fitted.script_at(size, gpu));
        let initial_blocks = &fitted.base.device.program().initial_blocks;
        let rounded_bytes = script.blocks.iter().enumerate().map(|(index, block)| match initial_blocks.get(index) {
            Some(initial) if initial.state == BlockState::ActivePendingFree => 0,
            Some(initial) if fitted.initial_laws[index].is_none() => initial.size,
            _ if block.is_failed => 0,
            _ => round_size(block.bytes, settings),
        });
        let rounded_bytes: Vec<u64> = rounded_bytes.collect();
        let peak = script.peak(|block| rounded_bytes[block as usize]);
        let mut later = script.ops[peak.ops..].iter().filter(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
        let requests_made = later.next().map_or(fitted.base.requests.len(), |op| recorded.requests_before(op.source));
        let blocks = peak.blocks.into_iter().map(|block| {
            let own = &script.blocks[block as usize];
            let index = own.allocated_at.map(|op| recorded.requests_before(op));
            let law = match index {
                Some(_) if block as usize >= recorded.blocks.len() => Some(Law::power(0, (size, own.bytes))),
                Some(index) => fitted.request_laws[index],
                None => fitted.initial_laws[block as usize],
            };
            PeakBlock { bytes: rounded_bytes[block as usize], stack: own.stack, law, index }
        });
        Self { size, requests_made, blocks: blocks.collect() }
    }

    pub(super) fn total_bytes(&self) -> u64 {
        sum_bytes(self.blocks.iter())
    }

    /// The share of the bytes with a law.
    pub(super) fn paired_ratio(&self) -> f64 {
        if self.blocks.is_empty() { 1.0 } else { self.ratio_of(|block| block.law.is_some()) }
    }

    /// Share of the bytes in blocks that are wanted.
    fn ratio_of(&self, is_wanted: impl Fn(&PeakBlock) -> bool) -> f64 {
        ratio(sum_bytes(self.blocks.iter().filter(|block| is_wanted(block))), self.total_bytes())
    }

    /// The share of the bytes with a law, among blocks with a stack.
    pub(super) fn stacks_paired_ratio(&self, fitted: &FittedProgram<'_, '_, '_>) -> f64 {
        let stacks = &fitted.base.device.snapshot().stacks;
        let with_stack = self.blocks.iter().filter(|block| !stacks.frames(block.stack).is_empty());
        let paired = sum_bytes(with_stack.clone().filter(|block| block.law.is_some()));
        let total = sum_bytes(with_stack);
        if total == 0 { 1.0 } else { ratio(paired, total) }
    }

    /// The share of the bytes that another recording has already freed at that point.
    pub(super) fn freed_elsewhere_ratio(&self, fitted: &FittedProgram<'_, '_, '_>) -> f64 {
        let freed = fitted.others.iter().map(|(other, pairs)| {
            // The same point in the other recording: after the pair of the last paired request.
            let requests_made = pairs.requests.iter().take(self.requests_made).rev().flatten().next();
            let requests_made = requests_made.map_or(0, |last| *last as usize + 1);
            self.ratio_of(|block: &PeakBlock| {
                let paired = block.index.and_then(|index| *pairs.requests.get(index)?);
                let paired = paired.and_then(|paired| other.requests.get(paired as usize));
                paired.and_then(|paired| paired.requests_before_free).is_some_and(|freed| freed < requests_made)
            })
        });
        freed.fold(0.0, f64::max)
    }

    /// The share of the bytes whose requests change their size from step to step.
    pub(super) fn varying_ratio(&self, fitted: &FittedProgram<'_, '_, '_>) -> f64 {
        self.ratio_of(|block| block.index.is_some_and(|index| fitted.varies[index]))
    }

    /// The share of the bytes that would shrink at a larger size; 0 for recordings of one program.
    pub(super) fn shrinking_ratio(&self) -> f64 {
        self.ratio_of(|block| {
            block.law.is_some_and(|law| law.bytes_at(self.size.saturating_mul(2)) < law.bytes_at(self.size))
        })
    }

    /// Whether the total would shrink if the size doubled.
    pub(super) fn shrinks(&self) -> bool {
        self.bytes_at(self.size.saturating_mul(2)) < self.bytes_at(self.size)
    }

    /// The bytes of the same blocks at another size.
    fn bytes_at(&self, size: u64) -> u64 {
        let bytes = self.blocks.iter().map(|block| block.law.map_or(block.bytes, |law| law.bytes_at(size)));
        bytes.fold(0, u64::saturating_add)
    }

    /// The share of the bytes whose growth is no exact function of the size, because kernels or libraries pad them.
    pub(super) fn approximate_ratio(&self) -> f64 {
        self.ratio_of(|block| block.law.is_some_and(|law| !law.is_exact))
    }

    /// The lines with paired blocks that grow most, or those with most unpaired bytes.
    pub(super) fn lines(&self, fitted: &FittedProgram<'_, '_, '_>, are_paired: bool) -> Vec<GrowingLine> {
        #[derive(Default)]
        struct LineTotals {
            bytes: u64,
            /// The index of the first of its requests.
            request: Option<usize>,
            /// The additional bytes if the size is larger by 1.
            growth: u64,
            growth_by_law: BTreeMap<LawKind, u64>,
            growth_by_stack: FxHashMap<StackId, u64>,
        }
        let stacks = fitted.base.device.stacks();
        let mut line_by_stack: FxHashMap<StackId, LineId> = FxHashMap::default();
        let mut lines: FxHashMap<LineId, LineTotals> = FxHashMap::default();
        for block in self.blocks.iter().filter(|block| block.law.is_some() == are_paired) {
            let line_id = *line_by_stack.entry(block.stack).or_insert_with(|| stacks.line_id(block.stack));
            let totals = lines.entry(line_id).or_default();
            totals.bytes = totals.bytes.saturating_add(block.bytes);
            totals.request = totals.request.or(block.index);
            let kind = block.law.map_or(LawKind::Constant, |law| law.kind());
            let next_size = self.size.saturating_add(1);
            let growth = block.law.map_or(0, |law| law.bytes_at(next_size).saturating_sub(law.bytes_at(self.size)));
            totals.growth = totals.growth.saturating_add(growth);
            *totals.growth_by_stack.entry(block.stack).or_default() += growth.max(1);
            // A block that does not grow counts as 1 byte, so that its kind decides only if no block grows.
            let of_law = totals.growth_by_law.entry(kind).or_default();
            *of_law = of_law.saturating_add(growth.max(1));
        }
        let total_bytes = self.total_bytes();
        let mut rows: Vec<(LineId, LineTotals)> = lines.into_iter().collect();
        rows.sort_by_key(|(name, line)| (Reverse(line.growth), Reverse(line.bytes), *name));
        rows.truncate(MAX_LINES);
        let reports = rows.into_iter().map(|(name, line)| {
            let stack = line.growth_by_stack.iter().max_by_key(|(stack, growth)| (**growth, Reverse(**stack)));
            let main_law = line.growth_by_law.into_iter().rev().max_by_key(|(_, bytes)| *bytes);
            let request = line.request.and_then(|index| fitted.base.requests.get(index));
            GrowingLine {
                bytes: line.bytes,
                share_ratio: ratio(line.bytes, total_bytes),
                bytes_per_unit: signed_difference(0, line.growth),
                law: main_law.map_or(LawKind::Constant, |(kind, _)| kind),
                frames: stack.map_or_else(FrameList::default, |(stack, _)| stacks.frame_list(*stack)),
                location: fitted.base.code_location(name, request),
            }
        });
        reports.collect()
    }
}

//! How much memory of each category there was over time: every block of many moments is judged once, and added
//! to all of those that it saw.

use std::ops::Range;

use super::category::sort_out;
use super::kinds::Category;
use super::lives::{LiveBlock, LiveSet, Lives};
use crate::snapshot::{Action, Device};
use crate::stacks::phases::Phases;

/// Live memory of one category at each of many moments, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// What it was for.
    pub category: Category,
    /// Of each moment.
    pub bytes: Vec<u64>,
}

/// The layers of the `moments` that `lives` has samples of, in the order of the categories; without those that
/// hold nothing.
pub(super) fn layers(
    device: Device<'_>,
    lives: &mut Lives<'_>,
    phases: &Phases,
    moments: usize,
) -> Vec<Layer> {
    // What is freed after the last failure, or the last allocation, is given up, not done with.
    let failed = device.failed().next_back();
    let last = device.with_action(Action::Alloc).next_back();
    let is_before = |block: &LiveBlock| {
        failed.is_some_and(|failed| block.born.is_none_or(|born| born.entry as usize <= failed))
    };
    let seen = std::mem::take(&mut lives.samples.seen);
    let (before, after): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(b, _)| is_before(b));
    let mut bytes = vec![vec![0_u64; moments + 1]; Category::ALL.len()];
    for (end, seen) in [(failed, before), (last, after)] {
        let at = lives.point(end.unwrap_or_default());
        let (mut blocks, spans): (Vec<LiveBlock>, Vec<Range<u32>>) = seen.into_iter().unzip();
        for block in &mut blocks {
            block.freed = block.freed.filter(|freed| freed.entry <= at.entry);
        }
        let set = LiveSet { entry: Some(at.entry as usize), at, end: Some(at), blocks };
        let judged = sort_out(&set, lives, phases);
        for ((block, span), (category, _)) in set.blocks.iter().zip(spans).zip(judged) {
            let grown = &mut bytes[category as usize];
            let [first, next] = [span.start, span.end].map(|n| n as usize);
            grown[first] = grown[first].wrapping_add(block.bytes);
            grown[next] = grown[next].wrapping_sub(block.bytes);
        }
    }
    let layers = Category::ALL.iter().zip(bytes).map(|(category, mut bytes)| {
        bytes.truncate(moments);
        let mut sum = 0_u64;
        for here in &mut bytes {
            sum = sum.wrapping_add(*here);
            *here = sum;
        }
        Layer { category: *category, bytes }
    });
    layers.filter(|layer| layer.bytes.iter().any(|bytes| *bytes > 0)).collect()
}

//! Memory by category over time. Each block is classified once, then added to all samples within its lifetime.

use std::ops::Range;

use super::classify::classify;
use super::lifetimes::Lifetimes;
use super::live_set::{LiveBlock, LiveSet};
use crate::snapshot::{Action, Device};
use crate::stacks::phases::Phases;
use crate::study::category::Category;

/// Live memory of one category over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CategoryLayer {
    /// The use of its blocks.
    pub category: Category,
    /// Bytes at each sample.
    pub bytes: Vec<u64>,
}

/// The layers over the `samples` of `lifetimes`, in the order of the categories, without empty ones.
pub(super) fn category_layers(
    device: Device<'_>,
    lifetimes: &mut Lifetimes<'_>,
    phases: &Phases,
    samples: usize,
) -> Vec<CategoryLayer> {
    // Frees after the last failure or the last allocation are teardown and say nothing about the purpose.
    let failed = device.failed_requests().next_back();
    let last = device.indexes_with_action(Action::Alloc).next_back();
    let is_before = |block: &LiveBlock| {
        failed.is_some_and(|failed| block.allocated_at.is_none_or(|allocated_at| allocated_at.entry as usize <= failed))
    };
    let sampled = std::mem::take(&mut lifetimes.samples.sampled);
    let (before, after): (Vec<_>, Vec<_>) = sampled.into_iter().partition(|(b, _)| is_before(b));
    let mut bytes = vec![vec![0_u64; samples + 1]; Category::ALL.len()];
    for (end, sampled) in [(failed, before), (last, after)] {
        // Without a failure `before` is empty; without an allocation all frees are teardown.
        let at = lifetimes.point(end.unwrap_or_default());
        let (mut blocks, spans): (Vec<LiveBlock>, Vec<Range<u32>>) = sampled.into_iter().unzip();
        for block in &mut blocks {
            block.freed_at = block.freed_at.filter(|freed| freed.entry <= at.entry);
        }
        let live_set = LiveSet { entry: Some(at.entry as usize), point: at, observed_until: Some(at), blocks };
        let classified = classify(&live_set, lifetimes, phases);
        for ((block, span), (category, _)) in live_set.blocks.iter().zip(spans).zip(classified) {
            let changes = &mut bytes[category as usize];
            let [first, next] = [span.start, span.end].map(|n| n as usize);
            changes[first] = changes[first].wrapping_add(block.bytes);
            changes[next] = changes[next].wrapping_sub(block.bytes);
        }
    }
    let layers = Category::ALL.iter().zip(bytes).map(|(category, mut bytes)| {
        bytes.truncate(samples);
        let mut sum = 0_u64;
        for value in &mut bytes {
            sum = sum.wrapping_add(*value);
            *value = sum;
        }
        CategoryLayer { category: *category, bytes }
    });
    layers.filter(|layer| layer.bytes.iter().any(|bytes| *bytes > 0)).collect()
}

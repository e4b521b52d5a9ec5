//! Which live blocks keep free memory from being used or given back.

use std::collections::BTreeMap;

use super::frames::StackReader;
use super::oom::Blocker;
use crate::ids::StackId;
use crate::replay::Tiling;

/// Blockers that are listed.
const SHOWN: usize = 5;
/// A stack that unlocks less than this part of all that is locked is not worth a look.
const LEAST_PART: u64 = 100;

#[derive(Default)]
struct Held {
    unlocked: u64,
    blocks: u64,
    bytes: u64,
}

/// By stack: free memory beside its live blocks, which would be joined or released without them. Those
/// come first that unlock most for each byte they hold.
pub(super) fn blockers(tiling: &Tiling, stacks: &StackReader<'_>) -> Vec<Blocker> {
    let mut held: BTreeMap<StackId, Held> = BTreeMap::new();
    let mut locked = 0u64;
    for (block, neighbours) in tiling.neighbourhoods() {
        let live = neighbours.iter().flatten().filter(|n| !n.is_free);
        if block.is_free {
            let mut by: Vec<StackId> = live.map(|n| n.stack).collect();
            by.dedup();
            locked += if by.is_empty() { 0 } else { block.size };
            for stack in by {
                held.entry(stack).or_default().unlocked += block.size;
            }
        } else if neighbours.iter().flatten().any(|n| n.is_free) {
            let one = held.entry(block.stack).or_default();
            one.blocks += 1;
            one.bytes += block.size;
        }
    }
    let mut worth: Vec<(StackId, Held)> = held
        .into_iter()
        .filter(|(_, one)| one.bytes > 0 && one.unlocked.saturating_mul(LEAST_PART) >= locked)
        .collect();
    // a / b > c / d, without dividing.
    let scale = |a: &Held, b: &Held| u128::from(a.unlocked) * u128::from(b.bytes);
    worth.sort_by(|(_, a), (_, b)| scale(b, a).cmp(&scale(a, b)).then(b.unlocked.cmp(&a.unlocked)));
    worth.truncate(SHOWN);
    let report = |(stack, one): (StackId, Held)| Blocker {
        bytes_unlocked: one.unlocked,
        blocks: one.blocks,
        bytes_held: one.bytes,
        culprit: stacks.culprit(stack),
        operation: stacks.operation(stack),
        frames: stacks.whole(stack),
    };
    worth.into_iter().map(report).collect()
}

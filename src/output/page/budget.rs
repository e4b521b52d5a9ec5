//! Limits the size of a page so that browsers open it quickly. Omits the smallest and shortest allocations of a large
//! recording and keeps their sum over time.

use itertools::Itertools as _;
use rustc_hash::FxHashSet;

use super::columns::Column;
use serde_json::{Value, json};

use crate::base::ids::StackId;
use crate::study::lifetimes::{AllocationLifetime, MemoryLifetimes};

/// Maximum bytes of base64 for one device.
const MAX_DEVICE_BASE64: usize = 12 << 20;
/// Maximum bytes of base64 for all devices of a file.
const MAX_FILE_BASE64: usize = 64 << 20;
/// Minimum for each device, even if that exceeds the limit of the file.
const MIN_DEVICE_BASE64: usize = 128 << 10;
/// Number of buckets of the sum of omitted allocations.
const SERIES_LEN: usize = 1024;

/// The budget of one of `devices` devices, in bytes of deflated data.
pub fn budget(devices: usize) -> usize {
    (MAX_FILE_BASE64 / devices.max(1)).clamp(MIN_DEVICE_BASE64, MAX_DEVICE_BASE64) / 4 * 3
}

/// Maximum number of frames of the distinct stacks that are packed. Their tree takes most of the time and memory of a
/// recording in which hardly two stacks are the same.
pub(super) const MAX_FRAMES: usize = 2_000_000;

/// The omitted allocations.
#[derive(Default)]
pub(super) struct Omitted {
    allocations: usize,
    /// Changes of their bytes, by the number of entries applied.
    changes: Vec<i128>,
}

impl Omitted {
    /// Their number, and their bytes over time: the maximum of each bucket. `None` if nothing was omitted.
    pub(super) fn summarize(&self) -> Option<(Value, Vec<u8>)> {
        let moments = self.changes.len().checked_sub(1).filter(|_| self.allocations > 0)?;
        let mut sum = 0_i128;
        let held = self.changes[..moments].iter().map(|change| {
            sum += change;
            u64::try_from(sum).unwrap_or(u64::MAX)
        });
        let buckets = held.chunks(moments.div_ceil(SERIES_LEN).max(1));
        let series: Vec<u64> = buckets.into_iter().map(|bucket| bucket.fold(0, u64::max)).collect();
        let bytes_at_most = series.iter().copied().fold(0, u64::max);
        let summary = json!({ "allocations": self.allocations, "bytes_at_most": bytes_at_most });
        Some((summary, series.into_iter().collect::<Column>().bytes))
    }
}

/// The product of bytes and lifetime, in a trace of `entries`.
fn weight(one: &AllocationLifetime, entries: u32) -> u128 {
    let end = one.reusable_at.unwrap_or(entries.saturating_add(1));
    u128::from(one.bytes) * u128::from(end.saturating_sub(one.start).max(1))
}

/// The number of allocations with the largest weights whose distinct stacks have at most `max` frames. `depth` is the
/// number of frames of a stack.
pub(super) fn count_within_frames(
    lives: &MemoryLifetimes,
    max: usize,
    entries: u32,
    depth: impl Fn(StackId) -> usize,
) -> usize {
    let total = |allocations: &mut dyn Iterator<Item = &AllocationLifetime>| {
        let mut known: FxHashSet<StackId> = FxHashSet::default();
        let mut frames = 0;
        let is_within = |one: &&AllocationLifetime| {
            if known.insert(one.made_by) {
                frames += depth(one.made_by);
            }
            frames <= max
        };
        allocations.take_while(is_within).count()
    };
    if total(&mut lives.allocations.iter()) == lives.allocations.len() {
        return lives.allocations.len();
    }
    total(&mut lives.allocations.iter().sorted_by_key(|one| std::cmp::Reverse(weight(one, entries))))
}

/// Keeps the `keep` allocations with the largest weights, and adds the others to `omitted`.
pub(super) fn omit_smallest(lives: &mut MemoryLifetimes, keep: usize, entries: u32, omitted: &mut Omitted) {
    let mut weights: Vec<u128> = lives.allocations.iter().map(|one| weight(one, entries)).collect();
    let Some(cut) = weights.len().checked_sub(keep).filter(|cut| *cut > 0) else { return };
    let (_, threshold, _) = weights.select_nth_unstable(cut - 1);
    let threshold = *threshold;
    omitted.changes.resize(entries as usize + 2, 0);
    lives.allocations.retain(|one| {
        let is_left_out = weight(one, entries) <= threshold;
        if is_left_out {
            omitted.allocations += 1;
            let end = one.reusable_at.unwrap_or(entries + 1);
            omitted.changes[one.start as usize] += i128::from(one.bytes);
            omitted.changes[end as usize] -= i128::from(one.bytes);
        }
        !is_left_out
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;
    use crate::study::{Scope, Study};

    #[test]
    fn the_largest_allocations_are_kept_within_a_number_of_frames() {
        let entry = |action: &str, mib: u64, line: u64| {
            let frames = [serde_json::json!({"filename": "/a.py", "line": line, "name": "f"})];
            let frames: Vec<_> = frames.iter().cycle().take(4).collect();
            serde_json::json!({"action": action, "addr": (1u64 << 32) + (mib << 24), "size": mib << 20, "stream": 0,
                "frames": frames})
        };
        // Lines 1, 2, 3, 1 for 2, 8, 4, 6 MiB: four frames a line.
        let alloc = [(2, 1), (8, 2), (4, 3), (6, 1)];
        let entries =
            alloc.iter().flat_map(|(mib, line)| [entry("segment_alloc", *mib, *line), entry("alloc", *mib, *line)]);
        let text = serde_json::json!({"segments": [], "device_traces": [entries.collect::<Vec<_>>()]}).to_string();
        let snapshot = Snapshot::read(text.as_bytes(), &|_| ()).unwrap();
        let study = Study::new(&snapshot, Scope::default());
        let mut lives = MemoryLifetimes::from_device(study.devices().next().unwrap());
        let kept = |max: usize| count_within_frames(&lives, max, 8, |stack| snapshot.stacks.frames(stack).len());
        assert_eq!([kept(12), kept(11), kept(8), kept(7), kept(3)], [4, 2, 2, 1, 0]);
        let mut omitted = Omitted::default();
        omit_smallest(&mut lives, 3, 8, &mut omitted);
        omit_smallest(&mut lives, 1, 8, &mut omitted);
        assert_eq!(lives.allocations.len(), 1);
        let (summary, _) = omitted.summarize().unwrap();
        assert_eq!(summary, serde_json::json!({ "allocations": 3, "bytes_at_most": 12 << 20 }));
    }
}

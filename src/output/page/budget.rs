//! Limits the size of a page so that browsers open it quickly. Omits the smallest and shortest allocations of a large
//! recording and keeps their sum over time.

use std::cmp::Reverse;
use std::mem;

use itertools::Itertools as _;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use super::columns::Column;
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

/// The allocations of a page of `entries` entries, and which of them it omits.
pub(super) struct Budgeted<'l> {
    pub(super) lives: &'l MemoryLifetimes,
    entries: u32,
    /// The largest weight of those that are omitted; `None` if none is.
    max_omitted: Option<u64>,
}

impl<'l> Budgeted<'l> {
    /// Omits none.
    pub(super) fn new(lives: &'l MemoryLifetimes, entries: u32) -> Self {
        Self { lives, entries, max_omitted: None }
    }

    /// Omits all but the `keep` allocations with the largest weights.
    pub(super) fn keep(&mut self, keep: usize) {
        let mut weights: Vec<u64> = self.lives.allocations.iter().map(|one| self.weight(one)).collect();
        let cut = weights.len().saturating_sub(keep).checked_sub(1);
        self.max_omitted = cut.map(|cut| *weights.select_nth_unstable(cut).1);
    }

    fn is_omitted(&self, one: &AllocationLifetime) -> bool {
        self.max_omitted.is_some_and(|max| self.weight(one) <= max)
    }

    /// Those that are not omitted.
    pub(super) fn kept(&self) -> impl Iterator<Item = &'l AllocationLifetime> {
        self.lives.allocations.iter().filter(|one| !self.is_omitted(one))
    }

    /// The number of omitted allocations, and their bytes over time: the maximum of each bucket. `None` if none is omitted.
    pub(super) fn summarize_omitted(&self) -> Option<(Value, Column)> {
        self.max_omitted?;
        let bucket_len = (self.entries as usize + 1).div_ceil(SERIES_LEN);
        let mut omitted = self.lives.allocations.iter().filter(|one| self.is_omitted(one)).peekable();
        // Changes of the sum by entry of a bucket: most allocations begin and end in the same. The other ends wait.
        let (mut changes, mut later) = (vec![0_i128; bucket_len], vec![Vec::new(); SERIES_LEN + 1]);
        let (mut count, mut sum, mut series) = (0_u64, 0_i128, Vec::new());
        for (bucket, first) in (0..=self.entries as usize).step_by(bucket_len).enumerate() {
            changes.fill(0);
            for (at, bytes) in mem::take(&mut later[bucket]) {
                changes[at] -= i128::from(bytes);
            }
            while let Some(one) = omitted.next_if(|one| (one.start as usize) < first + bucket_len) {
                let (end, bytes) = (self.end(one) as usize, self.lives.kind_of(one).bytes);
                changes[one.start as usize - first] += i128::from(bytes);
                match changes.get_mut(end - first) {
                    Some(change) => *change -= i128::from(bytes),
                    None => later[end / bucket_len].push((end % bucket_len, bytes)),
                }
                count += 1;
            }
            let mut most = 0;
            for change in &changes {
                sum += change;
                most = most.max(sum);
            }
            series.push(u64::try_from(most).unwrap_or(u64::MAX));
        }
        let bytes_at_most = series.iter().copied().fold(0, u64::max);
        let summary = json!({ "allocations": count, "bytes_at_most": bytes_at_most });
        Some((summary, Column::from_values("undrawn", series)))
    }

    fn end(&self, one: &AllocationLifetime) -> u32 {
        one.reusable_at().unwrap_or(self.entries.saturating_add(1))
    }

    /// The product of bytes and lifetime.
    fn weight(&self, one: &AllocationLifetime) -> u64 {
        self.lives.kind_of(one).bytes.saturating_mul(self.end(one).saturating_sub(one.start).max(1).into())
    }

    /// The number of allocations with the largest weights whose distinct stacks have at most `max` frames. `depth` is the
    /// number of frames of a stack.
    pub(super) fn count_within_frames(&self, max: usize, depth: impl Fn(StackId) -> usize) -> usize {
        let all = &self.lives.allocations;
        let stacks: FxHashSet<StackId> = all.iter().map(|one| one.made_by).collect();
        if stacks.into_iter().map(&depth).sum::<usize>() <= max {
            return all.len();
        }
        let mut known: FxHashSet<StackId> = FxHashSet::default();
        let mut frames = 0;
        let within = all.iter().sorted_by_key(|one| Reverse(self.weight(one))).take_while(|one| {
            if known.insert(one.made_by) {
                frames += depth(one.made_by);
            }
            frames <= max
        });
        within.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;
    use crate::study::{Scope, Study};

    /// An entry whose stack has four frames.
    fn entry(action: &str, mib: u64, line: u64) -> serde_json::Value {
        let frames = vec![serde_json::json!({"filename": "/a.py", "line": line, "name": "f"}); 4];
        serde_json::json!({"action": action, "addr": (1u64 << 32) + (mib << 24), "size": mib << 20, "stream": 0,
            "frames": frames})
    }

    #[test]
    fn the_largest_allocations_are_kept_within_a_number_of_frames() {
        // Lines 1, 2, 3, 1 for 2, 8, 4, 6 MiB: four frames a line.
        let alloc = [(2, 1), (8, 2), (4, 3), (6, 1)];
        let entries =
            alloc.iter().flat_map(|(mib, line)| [entry("segment_alloc", *mib, *line), entry("alloc", *mib, *line)]);
        let text = serde_json::json!({"segments": [], "device_traces": [entries.collect::<Vec<_>>()]}).to_string();
        let snapshot = Snapshot::read(text.as_bytes(), &|_| ()).unwrap();
        let study = Study::new(&snapshot, Scope::default());
        let lives = MemoryLifetimes::from_device(study.devices().next().unwrap());
        let mut budgeted = Budgeted::new(&lives, 8);
        for (max, kept) in [(12, 4), (11, 2), (8, 2), (7, 1), (3, 0)] {
            assert_eq!(budgeted.count_within_frames(max, |stack| snapshot.stacks.frames(stack).len()), kept);
        }
        budgeted.keep(3);
        budgeted.keep(1);
        assert_eq!(budgeted.kept().count(), 1);
        let (summary, _) = budgeted.summarize_omitted().unwrap();
        assert_eq!(summary, serde_json::json!({ "allocations": 3, "bytes_at_most": 12 << 20 }));
    }
}

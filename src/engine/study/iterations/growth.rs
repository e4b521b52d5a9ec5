//! Memory that grows from iteration to iteration.

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::requests::{RequestId, Requests};
use super::{Iterations, MAX_COMPARED, ProgramLoops};
use crate::base::intern::SeededMap;
use crate::base::warning::words;

/// Fewer differences between iterations show no growth.
const MIN_DIFFERENCES: usize = 4;
/// Blocks exceed their requests by at most 1/this.
const MAX_SLACK_PARTS: u64 = 6;
/// Growth is steady if its mean is within 1/this of the typical growth.
const STEADY_PARTS: u64 = 10;
/// Growth between iterations explains the growth of the memory needed within one up to this multiple: a tensor that is
/// made anew exists twice for a while.
const MAX_TRANSIENT_MULTIPLE: u64 = 2;

/// The blocks that stay account for the growth at most this many times.
const MAX_KEPT_MULTIPLE: u64 = 2;

words! {
    /// The kind of growth from iteration to iteration
    pub enum GrowthKind {
        /// Blocks of every iteration stay allocated
        Kept = "kept",
        /// A block is replaced by a larger one in every iteration, as by `cache = torch.cat([cache, new])`
        Replaced = "replaced",
    }
}

/// Live memory that grows with every iteration, between iterations.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// How memory grows.
    pub kind: GrowthKind,
    /// Number of differences between consecutive iterations that were compared.
    pub(crate) iterations: usize,
    /// The rise of its bytes.
    pub rate: GrowthRate,
    /// Allocated bytes at the start of the last iteration.
    pub(crate) allocated_bytes: u64,
    /// Peak of the last whole iteration beyond the memory at its start.
    pub(crate) needed_bytes: u64,
    /// The trace entries of the first requests of the iterations, including the last.
    pub start_entries: Vec<usize>,
    /// Training steps in each iteration; 1 without an optimizer.
    pub(crate) steps_per_iteration: u64,
    /// Each iteration makes one request, as where a program loads its data.
    pub(crate) is_single_request: bool,
    /// The call sites whose blocks grow, most bytes first.
    pub lines: Vec<GrowingLine>,
}

/// A call site whose blocks grow.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GrowingLine {
    /// The trace entry of its last request that is still live.
    pub last_entry: usize,
    /// That of the first one.
    pub(crate) first_entry: usize,
    /// The iteration of the first one; 0 if it precedes them all.
    pub(crate) first_iteration: usize,
    pub(crate) bytes_per_iteration: u64,
    /// Blocks of an iteration that leaves some; 0 if its blocks are replaced by larger ones.
    pub(crate) blocks: u64,
    /// 1 if every iteration leaves blocks, n if every n-th does.
    pub(crate) every_iterations: u64,
    /// Number of iterations that left such a block.
    pub(crate) iterations: u64,
    /// Its live bytes at the end.
    pub(crate) live_bytes: u64,
    pub(crate) live_blocks: u64,
}

/// The rise of the live bytes from iteration to iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthRate {
    /// The mean of the differences; without the extreme ones, unless these are every n-th.
    pub bytes_per_iteration: u64,
    /// The mean over all iterations but the first, with the rare ones that leave more.
    pub(crate) mean_bytes: u64,
    /// Every n-th iteration leaves more than the others, as where each tenth step keeps its outputs.
    pub is_occasional: bool,
}

impl GrowthRate {
    /// `live` has the live bytes at the start of each iteration. `None` if they do not rise.
    pub fn from_live(live: &[i64], is_occasional: bool) -> Option<Self> {
        let mean = mean_rise(live);
        let bytes_per_iteration = if is_occasional { mean } else { typical_rise(live) }.filter(|bytes| *bytes > 0)?;
        Some(Self { bytes_per_iteration, mean_bytes: mean.unwrap_or(bytes_per_iteration), is_occasional })
    }

    /// Whether each iteration adds about the same, so that the figures of one predict those of all.
    pub fn is_steady(self) -> bool {
        !self.is_occasional
            && self.mean_bytes.abs_diff(self.bytes_per_iteration) <= self.bytes_per_iteration / STEADY_PARTS
    }

    /// The rise per iteration in the long run.
    pub fn lasting_bytes(self) -> u64 {
        if self.is_steady() { self.bytes_per_iteration } else { self.mean_bytes }
    }
}

impl Growth {
    /// The same with the bytes that were allocated before each of [`Self::start_entries`]: a block may be larger than
    /// its request.
    #[must_use]
    pub(crate) fn with_allocated(mut self, allocated: &[u64]) -> Self {
        let [first, second @ .., last] = allocated else { return self };
        self.allocated_bytes = *last;
        // The first iteration may make state.
        let (start, rises) = second.first().map_or((first, 1), |second| (second, allocated.len() as u64 - 2));
        let rise = last.saturating_sub(*start) / rises;
        let by_requests = self.rate.bytes_per_iteration;
        if rise.abs_diff(by_requests) <= by_requests / MAX_SLACK_PARTS {
            self.rate.bytes_per_iteration = rise;
        }
        self
    }

    /// An iteration may be several steps.
    pub fn bytes_per_step(&self) -> u64 {
        self.rate.bytes_per_iteration / self.steps_per_iteration
    }

    /// Number of steps in which memory grew.
    pub fn steps(&self) -> u64 {
        self.iterations as u64 * self.steps_per_iteration
    }

    /// Total growth.
    pub fn bytes(&self) -> u64 {
        self.rate.bytes_per_iteration.saturating_mul(self.iterations as u64)
    }
}

impl ProgramLoops {
    /// The growth from iteration to iteration; `None` without a loop, or if nothing grows. `step_at` is the training
    /// step of a trace entry.
    pub fn growth(&self, step_at: &dyn Fn(usize) -> Option<u32>) -> Option<Growth> {
        let iterations = self.iterations.as_ref().filter(|iterations| !iterations.is_inner);
        let iterations = iterations.filter(|iterations| iterations.complete() >= MIN_DIFFERENCES)?;
        let starts = iterations.starts();
        let live: Vec<i64> = starts.iter().map(|start| self.requests.live_before(*start)).collect();
        let (typical, mean) = (typical_rise(&live).unwrap_or(0), mean_rise(&live).unwrap_or(0));
        if typical.max(mean) == 0 {
            return None;
        }
        let (mut sums, occasional_bytes) = kept_blocks(&self.requests, iterations);
        let is_occasional = occasional_bytes > typical / STEADY_PARTS && mean / MAX_KEPT_MULTIPLE <= sum_of(&sums);
        let rate = GrowthRate::from_live(&live, is_occasional)?;
        let bytes_per_iteration = rate.bytes_per_iteration;
        let kind = if sums.is_empty() { GrowthKind::Replaced } else { GrowthKind::Kept };
        // A loop of single requests shows no more than that some stay.
        if iterations.repetition.period > 1 && !needs_grow_faster(&self.requests, iterations, bytes_per_iteration) {
            for (site, replaced) in replaced_blocks(&self.requests, iterations) {
                sums.entry(site).or_insert(replaced);
            }
        }
        if sum_of(&sums) > bytes_per_iteration.saturating_mul(MAX_KEPT_MULTIPLE) {
            return None; // as much is freed elsewhere
        }
        let lines = growing_lines(&self.requests, &sums, starts);
        let [first, last] = [starts[0], iterations.start()].map(|start| step_at(self.requests.entry(start)));
        let steps = last.zip(first).map_or(0, |(last, first)| u64::from(last.saturating_sub(first)));
        let growth = Growth {
            kind,
            iterations: iterations.complete(),
            rate,
            allocated_bytes: 0,
            needed_bytes: self.requests.needed_in(iterations.range(iterations.complete() - 1)),
            start_entries: starts.iter().map(|start| self.requests.entry(*start)).collect(),
            steps_per_iteration: steps.div_ceil(iterations.complete() as u64).max(1),
            lines,
            is_single_request: iterations.repetition.period == 1,
        };
        (!growth.lines.is_empty()).then_some(growth)
    }
}

/// By call site, its growth per iteration; the fields about its requests are not filled in.
type SiteGrowth = SeededMap<u32, GrowingLine>;

fn sum_of(sites: &SiteGrowth) -> u64 {
    sites.values().fold(0, |sum: u64, growth| sum.saturating_add(growth.bytes_per_iteration))
}

/// The blocks that one request leaves, over all iterations.
#[derive(Debug, Default)]
struct KeptRequest {
    bytes: u64,
    /// The iterations that left one.
    iterations: Vec<usize>,
}

impl KeptRequest {
    /// n if every n-th of `compared` iterations left a block; 1 if nearly all did, since the first ones may take
    /// another path. Few iterations leave state that is made once.
    fn every(&self, compared: usize) -> Option<u64> {
        let count = self.iterations.len();
        if count > 1 && compared - count <= (compared / 10).max(1) {
            return Some(1);
        }
        let [first, second, .., last] = self.iterations[..] else { return None };
        let n = second - first;
        let is_even = self.iterations.windows(2).all(|pair| pair[1] - pair[0] == n);
        (is_even && count >= MIN_DIFFERENCES && first <= n && compared - last <= n).then_some(n as u64)
    }
}

/// By call site, the blocks that the same request leaves in every iteration, or in every n-th; and the bytes per
/// iteration of the latter. The last complete iteration is left out: its blocks may still be freed.
fn kept_blocks(requests: &Requests, iterations: &Iterations) -> (SiteGrowth, u64) {
    // By call site and ordinal among the requests of that site in an iteration.
    let mut kept: FxHashMap<(u32, u32), KeptRequest> = FxHashMap::default();
    let last = requests.count() - 1;
    let compared = iterations.complete() - 1;
    for index in 0..compared {
        let mut counts: FxHashMap<u32, u32> = FxHashMap::default();
        for request in iterations.range(index) {
            let site = requests.site(request);
            let number = counts.entry(site).or_default();
            *number += 1;
            if requests.freed_after(request) as usize >= last {
                let kept = kept.entry((site, *number)).or_default();
                kept.bytes = kept.bytes.saturating_add(requests.bytes(request));
                kept.iterations.push(index);
            }
        }
    }
    let mut sites = SiteGrowth::default();
    let mut occasional_bytes: u64 = 0;
    for ((site, _), kept) in kept {
        let Some(every) = kept.every(compared) else { continue };
        let counted = if every == 1 { kept.iterations.len() } else { compared };
        let bytes = kept.bytes / counted as u64;
        if every > 1 {
            occasional_bytes = occasional_bytes.saturating_add(bytes);
        }
        let growth = sites.entry(site).or_insert(GrowingLine { every_iterations: every, ..GrowingLine::default() });
        growth.bytes_per_iteration = growth.bytes_per_iteration.saturating_add(bytes);
        growth.blocks += 1;
        growth.every_iterations = growth.every_iterations.min(every);
    }
    (sites, occasional_bytes)
}

/// By call site, the growth from one block that outlives its iteration to the next.
fn replaced_blocks(requests: &Requests, iterations: &Iterations) -> SiteGrowth {
    let compared = iterations.complete().min(MAX_COMPARED);
    let first = iterations.complete() - compared;
    let mut previous = bytes_left_by(requests, iterations.range(first));
    let start = previous.clone();
    for index in first + 1..iterations.complete() {
        let mut next = bytes_left_by(requests, iterations.range(index));
        next.retain(|site, bytes| previous.get(site).is_some_and(|before| *before < *bytes));
        previous = next;
    }
    let growths = previous.into_iter().map(|(site, bytes)| {
        let rise = bytes.saturating_sub(start.get(&site).copied().unwrap_or(bytes));
        let bytes_per_iteration = rise / (compared as u64 - 1);
        (site, GrowingLine { bytes_per_iteration, every_iterations: 1, ..GrowingLine::default() })
    });
    growths.collect()
}

/// By call site, the bytes of the blocks that outlive `iteration`.
fn bytes_left_by(requests: &Requests, iteration: Range<RequestId>) -> SeededMap<u32, u64> {
    let mut left: SeededMap<u32, u64> = SeededMap::default();
    for request in iteration.clone().filter(|request| requests.freed_after(*request) as usize >= iteration.end) {
        let bytes = left.entry(requests.site(request)).or_default();
        *bytes = bytes.saturating_add(requests.bytes(request));
    }
    left
}

/// Whether an iteration needs memory that grows faster than the memory at its start: then its inputs grow. If the need
/// rises by the same amount each time, it comes from the growing memory itself.
fn needs_grow_faster(requests: &Requests, iterations: &Iterations, bytes_per_iteration: u64) -> bool {
    let needs: Vec<i64> =
        (0..iterations.complete()).map(|index| requests.needed_in(iterations.range(index)).cast_signed()).collect();
    let rise = typical_rise(&needs).unwrap_or(0);
    let is_even = rises(&needs).all(|one| one == i128::from(rise));
    rise > bytes_per_iteration.saturating_mul(MAX_TRANSIENT_MULTIPLE) && !is_even
}

fn growing_lines(requests: &Requests, sums: &SiteGrowth, starts: &[RequestId]) -> Vec<GrowingLine> {
    let mut lines: SeededMap<u32, GrowingLine> = SeededMap::default();
    let last = requests.count() - 1;
    // The last two iterations may still free some of their blocks.
    let recent = &starts[starts.len() - 2..];
    let mut last_recent: FxHashMap<u32, usize> = FxHashMap::default();
    for request in (0..=last).filter(|request| requests.freed_after(*request) as usize >= last) {
        let site = requests.site(request);
        let Some(sum) = sums.get(&site) else { continue };
        // A larger block replaced the first.
        let first = if sum.blocks == 0 { starts[0] } else { request };
        let line = lines.entry(site).or_insert(GrowingLine {
            first_entry: requests.entry(first),
            first_iteration: starts.partition_point(|start| *start <= first).saturating_sub(1),
            ..*sum
        });
        let recent_iteration = recent.partition_point(|start| *start <= request);
        if recent_iteration == 0 {
            line.iterations = (line.live_blocks + 1).checked_div(sum.blocks).unwrap_or(0);
        } else if last_recent.insert(site, recent_iteration) != Some(recent_iteration) {
            line.iterations += 1;
        }
        line.last_entry = requests.entry(request);
        line.live_bytes = line.live_bytes.saturating_add(requests.bytes(request));
        line.live_blocks += 1;
    }
    let mut lines: Vec<GrowingLine> = lines.into_values().collect();
    for line in lines.iter_mut().filter(|line| line.blocks == 0 || line.every_iterations > 1) {
        line.iterations = (starts.len() as u64 - 1) / line.every_iterations;
    }
    lines.sort_by_key(|line| (Reverse(line.bytes_per_iteration), line.last_entry));
    lines
}

/// The differences of consecutive values: sizes that a file makes up exceed an `i64`.
fn rises(values: &[i64]) -> impl Iterator<Item = i128> + '_ {
    values.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0]))
}

/// The mean difference of consecutive values after the first two: the first iteration may make state. `None` if it is
/// negative.
fn mean_rise(values: &[i64]) -> Option<u64> {
    let [_, second, .., last] = values else { return None };
    let rise = i128::from(*last) - i128::from(*second);
    u64::try_from(rise / i128::try_from(values.len() - 2).ok()?.max(1)).ok()
}

/// The typical difference of consecutive values: their mean without the extreme ones, such as that of an iteration that
/// made state once. `None` if it is negative.
fn typical_rise(values: &[i64]) -> Option<u64> {
    let mut rises: Vec<i128> = rises(values).collect();
    rises.sort_unstable();
    let trimmed = (rises.len() / 10).max(1);
    let middle = if rises.len() > 2 * trimmed { &rises[trimmed..rises.len() - trimmed] } else { &rises[..] };
    u64::try_from(middle.iter().sum::<i128>() / i128::try_from(middle.len().max(1)).unwrap_or(1)).ok()
}

pub(super) fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(iterations: &[usize], compared: usize) -> Option<u64> {
        KeptRequest { bytes: 8, iterations: iterations.to_vec() }.every(compared)
    }

    #[test]
    fn every_nth_iteration_leaves_a_block() {
        for (iterations, compared, expected) in [
            (&[0, 1, 2][..], 3, Some(1)),
            (&[1, 2], 3, Some(1)),
            (&[2], 2, None),
            (&[2, 3], 4, None),
            (&[2, 4, 6, 8], 10, Some(2)),
            (&[2, 4, 6, 8], 11, None),
            (&[3, 5, 7, 9], 10, None),
            (&[2, 5, 8, 11], 14, Some(3)),
            (&[2, 4, 6], 7, None),
            (&[1, 3, 5, 8], 9, None),
        ] {
            assert_eq!(every(iterations, compared), expected, "{iterations:?} of {compared}");
        }
    }

    #[test]
    fn a_single_jump_is_no_rise() {
        assert_eq!(typical_rise(&[10, 510, 510, 510, 510]), Some(0), "state that was made once");
        assert_eq!(typical_rise(&[10, 17, 24, 31, 1031, 1038]), Some(7));
        assert_eq!(typical_rise(&[90, 60, 30, 0]), None);
        assert_eq!(typical_rise(&[5]), Some(0));
        assert_eq!(typical_rise(&[0, 7, 14, 1000]), Some(7));
        assert_eq!(typical_rise(&[0, 7, 1000]), Some(500), "too few to leave any out");
    }

    #[test]
    fn rare_iterations_count_in_the_long_run() {
        for (mean_bytes, lasting) in [(89, 89), (90, 100), (110, 100), (111, 111)] {
            let rate = GrowthRate { bytes_per_iteration: 100, mean_bytes, is_occasional: false };
            assert_eq!(rate.lasting_bytes(), lasting);
        }
    }

    #[test]
    fn blocks_of_every_nth_iteration_are_even_and_reach_the_end() {
        assert_eq!(every(&[0, 5, 10, 15], 20), Some(5));
        assert_eq!(every(&[5, 10, 15, 20], 25), Some(5), "not in the first iteration");
        assert_eq!(every(&[6, 11, 16, 21], 25), None, "late");
        assert_eq!(every(&[0, 5, 10, 15], 21), None, "no more");
        assert_eq!(every(&[0, 5, 11, 15], 20), None, "uneven");
        assert_eq!(every(&[0, 5, 10], 15), None, "too few");
    }

    #[test]
    fn the_first_request_of_an_iteration_belongs_to_it() {
        // Two requests an iteration, which stay; the last iteration has made one.
        let requests = Requests::of_one_site(7);
        let growth =
            GrowingLine { bytes_per_iteration: 1024, blocks: 2, every_iterations: 1, ..GrowingLine::default() };
        let sums = [(0, growth)].into_iter().collect();
        let [line] = growing_lines(&requests, &sums, &[0, 2, 4, 6])[..] else { panic!() };
        let found = (line.first_iteration, line.last_entry, line.iterations, line.live_blocks, line.live_bytes);
        assert_eq!(found, (0, 60, 4, 7, 3584));
    }
}

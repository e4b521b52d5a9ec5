//! Finds the loop that a program is in, from its stacks alone: training, evaluation, generation, serving.
//!
//! In: a device's trace. Out: the iterations that end with its last request (`Iterations`): their length in
//! requests, where the last one starts, and how many complete ones precede it; and what grows from iteration to
//! iteration (`Growth`). Two requests correspond if they have the same Python frames, stream and pool; their sizes may
//! differ. No optimizer, backward pass or annotation is needed.
//!
//! The period is the shift by which the sequence of call sites matches itself furthest back from its end. Loops inside
//! one call of a module, an optimizer or a backward pass are inner loops, and no iterations of the program.

mod call_sites;
mod growth;
mod inputs;
mod requests;

use std::ops::Range;

pub use self::call_sites::{CallSites, SiteFrame};
pub use self::growth::{GrowingLine, Growth, GrowthKind, GrowthRate};
pub use self::inputs::{InputChange, UnusualInput};
pub use self::requests::{NEVER, RequestId, Requests};
use crate::base::ids::to_u32;
use crate::snapshot::Device;
use crate::stacks::frames::StackReader;

/// Complete iterations that are compared, at most.
pub const MAX_COMPARED: usize = 8;
/// A shorter repetition of call sites and sizes is no loop.
const MIN_REPEATED: usize = 8;
/// Fewer iterations whose requests differ are no loop.
const MIN_VARIED_ITERATIONS: usize = 3;
/// Live bytes between iterations exceed the minimum by at most 1/this of the range from minimum to maximum.
const LOW_PARTS: i64 = 4;
/// Iterations of one loop differ in length by at most this factor.
const MAX_LENGTH_RATIO: usize = 2;
/// A repetition of sizes that is this long is a loop, whatever its period.
const LONG_REPEATED: usize = 64;

/// The requests of a program and the loop that it is in.
#[derive(Debug)]
pub struct ProgramLoops {
    /// The requests, in order.
    pub requests: Requests,
    /// The loop that the last request belongs to, if it is not inside one call.
    pub iterations: Option<Iterations>,
    /// The longest repetition inside one call of a module, an optimizer or a backward pass, if there is no other.
    pub inner: Option<Repetition>,
}

/// Iterations of the loop that a sequence of requests ends in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iterations {
    /// The first requests of the complete iterations and of the last one, which may be incomplete.
    starts: Vec<RequestId>,
    /// How the sequence repeats.
    pub repetition: Repetition,
    /// All iterations make requests at the same call sites in the same order.
    pub is_uniform: bool,
    /// They are inside one call of a module, an optimizer or a backward pass; sizes show them.
    pub is_inner: bool,
}

impl Iterations {
    /// The first requests of the complete iterations and of the last one.
    pub fn starts(&self) -> &[RequestId] {
        &self.starts
    }

    /// The first request of the last iteration, which may be incomplete.
    pub fn start(&self) -> RequestId {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Number of complete iterations.
    pub fn complete(&self) -> usize {
        self.starts.len() - 1
    }

    /// The requests of complete iteration `index`.
    pub fn range(&self, index: usize) -> Range<RequestId> {
        self.starts[index]..self.starts[index + 1]
    }

    fn from_repetition(requests: &Requests, repetition: Repetition) -> Option<Self> {
        let Repetition { period, matched } = repetition;
        let last = requests.count().checked_sub(1)?;
        // Requests before a match that is shorter than one iteration belong to something else: the setup, or state made
        // once.
        let lowest = (last + 1).saturating_sub(period.min(matched)).max(period);
        let start = if period == 1 {
            last
        } else {
            // Live bytes are lowest between two iterations.
            (lowest..=last).rev().min_by_key(|request| requests.live_before(*request))?
        };
        let complete = start.checked_sub((last + 1).saturating_sub(matched + period))? / period;
        let starts = (0..=complete).rev().map(|back| start - back * period).collect();
        (complete > 0).then_some(Self { starts, repetition, is_uniform: true, is_inner: false })
    }

    /// Iterations whose requests differ, for example because sizes decide on kernels and their workspaces. Each starts at the
    /// call site with the minimum of live bytes.
    fn from_lowest_site(requests: &Requests, sites: &CallSites, repetition: Repetition) -> Option<Self> {
        let last = requests.count().checked_sub(1)?;
        let window = (last + 1).saturating_sub(repetition.period)..last + 1;
        let lowest = window.clone().rev().min_by_key(|request| requests.live_before(*request))?;
        let [minimum, maximum] =
            [requests.live_before(lowest), window.map(|request| requests.live_before(request)).max()?];
        let site = requests.site(lowest);
        let starts: Vec<RequestId> = (0..=last).filter(|request| requests.site(*request) == site).collect();
        let [before, start] = *starts.last_chunk()?;
        let len = start - before;
        if last + 1 - start > len * MAX_LENGTH_RATIO {
            return None;
        }
        // Each occurrence must be between iterations; the setup is not an iteration.
        let newest = starts.windows(2).rev().take_while(|pair| {
            let own = pair[1] - pair[0];
            own <= len * MAX_LENGTH_RATIO
                && len <= own * MAX_LENGTH_RATIO
                && requests.live_before(pair[0]) <= minimum + (maximum - minimum) / LOW_PARTS
        });
        let starts = starts[starts.len() - 1 - newest.count()..].to_vec();
        let is_loop = starts.len() > MIN_VARIED_ITERATIONS && sites.has_python(site);
        is_loop.then_some(Self { starts, repetition, is_uniform: false, is_inner: false })
    }
}

impl ProgramLoops {
    fn from_requests(requests: Requests, sites: &CallSites) -> Self {
        let outer = longest_repetition(requests.sites(), sites.shortest_outer_period(requests.sites()));
        // Sizes that repeat in order show a loop that stacks do not show.
        let is_short = outer.is_none_or(|outer| outer.period < MIN_REPEATED);
        let by_size = if is_short { longest_repetition(&requests.sites_with_sizes(), 1) } else { None };
        let by_size = by_size.filter(|by_size| {
            by_size.matched >= by_size.period.clamp(MIN_REPEATED, LONG_REPEATED)
                && outer.is_none_or(|outer| outer.period < by_size.period)
        });
        let iterations = by_size.or(outer).and_then(|repetition| {
            let is_partial = repetition.matched < repetition.period;
            Iterations::from_lowest_site(&requests, sites, repetition)
                .filter(|_| is_partial)
                .or_else(|| Iterations::from_repetition(&requests, repetition))
                .map(|iterations| Iterations { is_inner: outer.is_none(), ..iterations })
        });
        let inner = if outer.is_none() { longest_repetition(requests.sites(), 1) } else { None };
        Self { requests, iterations, inner }
    }

    /// The loops of `device` at the last request up to entry `end`.
    pub fn from_trace(device: Device<'_>, stacks: &StackReader<'_>, end: Option<usize>) -> (Self, CallSites) {
        let mut sites = CallSites::new(stacks, device.snapshot());
        (Self::from_requests(Requests::from_trace(device, end, &mut sites), &sites), sites)
    }

    /// The loops at the last request up to entry `end`; `None` if that is the last request of all.
    pub(crate) fn up_to(self, end: usize, sites: &CallSites) -> Option<Self> {
        Some(Self::from_requests(self.requests.up_to(end)?, sites))
    }
}

/// The end of a sequence repeats what came `period` elements before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repetition {
    /// The shift, in elements.
    pub period: usize,
    /// Number of equal elements.
    pub matched: usize,
}

/// The shift of at least `min_period` with the longest match that ends at the end of `sequence`; of several the
/// shortest. `None` if the last element is unique.
fn longest_repetition(sequence: &[u32], min_period: usize) -> Option<Repetition> {
    if min_period >= sequence.len() {
        return None;
    }
    let matches = reversed_z_function(sequence);
    let candidates = matches.iter().enumerate().skip(min_period.max(1));
    let (period, matched) = candidates.rev().max_by_key(|(_, matched)| **matched)?;
    let matched = *matched as usize;
    (matched > 0).then_some(Repetition { period, matched })
}

/// For each shift, the number of last elements that equal the ones that many places before.
fn reversed_z_function(sequence: &[u32]) -> Vec<u32> {
    let len = sequence.len();
    let mut matches = vec![0u32; len];
    let (mut left, mut right) = (0, 0);
    for shift in 1..len {
        let mut equal = if shift < right { (right - shift).min(matches[shift - left] as usize) } else { 0 };
        while shift + equal < len && sequence[len - 1 - equal] == sequence[len - 1 - shift - equal] {
            equal += 1;
        }
        matches[shift] = to_u32(equal);
        if shift + equal > right {
            (left, right) = (shift, shift + equal);
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(text: &str, min_period: usize) -> Option<(usize, usize)> {
        let sequence: Vec<u32> = text.bytes().map(u32::from).collect();
        longest_repetition(&sequence, min_period).map(|found| (found.period, found.matched))
    }

    #[test]
    fn the_longest_match_is_the_period() {
        assert_eq!(found_in("abc", 1), None, "nothing repeats");
        assert_eq!(found_in("setupabcabcab", 1), Some((3, 5)));
        assert_eq!(found_in("xaaaa", 1), Some((1, 3)));
        assert_eq!(found_in("xaabaabaab", 1), Some((3, 6)), "the inner loop is shorter");
        assert_eq!(found_in("xaabaabaa", 2), Some((3, 5)));
        assert_eq!(found_in("abababab", 3), Some((4, 4)), "a multiple of the period, if that is too short");
        assert_eq!(found_in("abab", 9), None);
        assert_eq!(found_in("", 0), None);
    }

    #[test]
    fn matches_equal_those_of_a_direct_comparison() {
        let sequence: Vec<u32> = (0..300u32).map(|n| (n * n / 7) % 3).collect();
        for (shift, matched) in reversed_z_function(&sequence).iter().enumerate().skip(1) {
            let pairs = sequence.iter().rev().zip(sequence.iter().rev().skip(shift));
            assert_eq!(*matched as usize, pairs.take_while(|(a, b)| a == b).count());
        }
    }
}

//! The sizes of each request of an iteration, in the iterations before and in the one that failed.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::laws::{is_constant, scale};
use crate::allocator::conf::Settings;
use crate::allocator::round_size;
use crate::base::ids::to_u32;
use crate::base::intern::{SeededSet, Slices};
use crate::study::iterations::{CallSites, Iterations, MAX_COMPARED, RequestId, Requests};

/// Maximum number of varying sizes from which others may be derived.
const MAX_REFERENCES: usize = 40;
/// Maximum number of iterations that are compared with the last one.
const MAX_CANDIDATES: usize = 64;

/// The size that a request will have, and whether an established law predicts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PredictedSize {
    pub(super) bytes: u64,
    pub(super) is_sure: bool,
}

impl PredictedSize {
    fn sure(bytes: u64) -> Self {
        Self { bytes, is_sure: true }
    }

    fn unsure(bytes: u64) -> Self {
        Self { bytes, is_sure: false }
    }
}

/// The sizes of each request of an iteration, by its offset.
#[derive(Debug)]
pub(super) struct IterationHistory {
    /// The complete iteration that is most like the one that failed.
    pub(super) source: usize,
    /// Number of requests in it.
    pub(super) len: usize,
    /// Complete iterations with the same call sites, newest first.
    members: Vec<RequestId>,
    /// Distinct sizes over the members.
    classes: Slices<u64>,
    class_of_offset: Vec<u32>,
    /// Offsets of requests without Python frames.
    is_stackless: Vec<bool>,
    /// Sizes of blocks that are older than the source and stay.
    persistent: SeededSet<u64>,
}

/// The sizes that the iteration which failed shows.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// By class, each size with the number of requests that had it.
    counts: FxHashMap<u32, Vec<(u64, usize)>>,
    /// Classes that vary, with their size in this iteration, largest first.
    references: Vec<(u32, u64)>,
    /// The commonest ratio of the new size to that of the iterations before, where it differs for the first time.
    new_permille: Option<u64>,
    /// Sizes of the varying classes that this iteration has not reached yet.
    derived: FxHashMap<u32, PredictedSize>,
}

impl IterationHistory {
    /// `None` if no earlier iteration has made the same requests as the last one so far.
    pub(super) fn new(
        requests: &Requests,
        iterations: &Iterations,
        sites: &CallSites,
        older_blocks: &[u64],
    ) -> Option<Self> {
        let failed = requests.count() - 1;
        let (source, members) = find_matching(requests, iterations)?;
        let start = iterations.starts()[source];
        let len = iterations.range(source).len();
        let mut classes = Slices::default();
        let class_of_offset = (0..len).map(|offset| {
            let sizes: Vec<u64> = members.iter().map(|member| requests.bytes(member + offset)).collect();
            classes.intern(&sizes)
        });
        let class_of_offset = class_of_offset.collect();
        let is_stackless: Vec<bool> = (0..len).map(|offset| !sites.has_python(requests.site(start + offset))).collect();
        let older = (0..start).filter(|request| requests.is_live_at(*request, failed));
        let older = older.map(|request| requests.bytes(request));
        let persistent =
            older.chain(older_blocks.iter().map(|bytes| round_size(*bytes, &Settings::default()))).collect();
        Some(Self { source, len, members, classes, class_of_offset, is_stackless, persistent })
    }

    pub(super) fn sizes(&self, offset: usize) -> &[u64] {
        self.classes.get(self.class_of_offset[offset])
    }

    /// Whether the iteration has requests without a stack, which a backward pass makes.
    pub(super) fn has_stackless(&self) -> bool {
        self.is_stackless.contains(&true)
    }

    /// Reads the sizes `now` of the requests at the first offsets.
    pub(super) fn observe(&self, pairs: impl Iterator<Item = (usize, u64)>) -> Observed {
        let mut observed = Observed::default();
        for (offset, now) in pairs {
            let counts = observed.counts.entry(self.class_of_offset[offset]).or_default();
            match counts.iter_mut().find(|(bytes, _)| *bytes == now) {
                Some((_, count)) => *count += 1,
                None => counts.push((now, 1)),
            }
        }
        let mut permilles: FxHashMap<u64, usize> = FxHashMap::default();
        for (class, counts) in &mut observed.counts {
            counts.sort_by_key(|(bytes, count)| (std::cmp::Reverse(*count), *bytes));
            let (sizes, now) = (self.classes.get(*class), counts[0].0);
            if !is_constant(sizes) {
                observed.references.push((*class, now));
            } else if sizes[0] != now {
                *permilles.entry(now.saturating_mul(1000) / sizes[0].max(1)).or_default() += 1;
            }
        }
        observed
            .references
            .sort_by_key(|(class, _)| (std::cmp::Reverse(self.classes.get(*class).iter().copied().max()), *class));
        observed.references.truncate(MAX_REFERENCES);
        let commonest = permilles.into_iter().max_by_key(|(permille, count)| (*count, *permille));
        observed.new_permille = commonest.map(|(permille, _)| permille);
        let varying = (0..to_u32(self.classes.len())).filter(|class| !is_constant(self.classes.get(*class)));
        let unseen = varying.filter(|class| !observed.counts.contains_key(class));
        observed.derived = unseen.map(|class| (class, self.derive(self.classes.get(class), &observed))).collect();
        observed
    }

    /// The size that the request at `offset` will have in the iteration that failed.
    pub(super) fn predict(&self, offset: usize, observed: &Observed) -> PredictedSize {
        let class = self.class_of_offset[offset];
        let sizes = self.classes.get(class);
        if let Some(counts) = observed.counts.get(&class) {
            let is_clear = counts.get(1).is_none_or(|second| counts[0].1 > 2 * second.1);
            if is_clear {
                return PredictedSize::sure(counts[0].0);
            }
            let is_parameter_sized =
                self.persistent.contains(&sizes[0]) && counts.iter().any(|(bytes, _)| *bytes == sizes[0]);
            return PredictedSize::unsure(if is_parameter_sized { sizes[0] } else { counts[0].0 });
        }
        if is_constant(sizes) && !observed.references.is_empty() {
            return PredictedSize::sure(sizes[0]);
        }
        if let Some(derived) = observed.derived.get(&class) {
            return *derived;
        }
        match observed.new_permille {
            None => PredictedSize::sure(sizes[0]),
            Some(_) if self.persistent.contains(&sizes[0]) => {
                PredictedSize { bytes: sizes[0], is_sure: self.is_stackless[offset] }
            }
            Some(permille) => PredictedSize::unsure(in_proportion(sizes[0], permille, 1000)),
        }
    }

    /// Derives the size of a varying class from that of another one.
    fn derive(&self, sizes: &[u64], observed: &Observed) -> PredictedSize {
        let mut references = observed.references.iter();
        let scaled = references.find_map(|(reference, now)| scale(sizes, self.classes.get(*reference), *now));
        PredictedSize { bytes: scaled.unwrap_or_else(|| self.most_similar(sizes, observed)), is_sure: scaled.is_some() }
    }

    /// Scales the size from the iteration whose largest reference was nearest to the present one.
    fn most_similar(&self, sizes: &[u64], observed: &Observed) -> u64 {
        let Some((reference, now)) = observed.references.first() else { return sizes[0] };
        let earlier = self.classes.get(*reference);
        let nearest = (0..earlier.len()).min_by_key(|index| earlier[*index].abs_diff(*now)).unwrap_or(0);
        in_proportion(sizes[nearest], *now, earlier[nearest])
    }

    /// Total bytes of the requests of each member, oldest first.
    pub(super) fn totals(&self) -> Vec<u64> {
        let members = (0..self.members.len()).rev();
        members.map(|back| (0..self.len).map(|offset| self.sizes(offset)[back]).fold(0, u64::saturating_add)).collect()
    }
}

/// The complete iteration that is most like the last one so far, and the first requests of those with the same call
/// sites, newest first.
fn find_matching(requests: &Requests, iterations: &Iterations) -> Option<(usize, Vec<RequestId>)> {
    let newest = (0..iterations.complete()).rev();
    if iterations.is_uniform {
        let members = newest.take(MAX_COMPARED).map(|index| iterations.starts()[index]).collect();
        return Some((iterations.complete() - 1, members));
    }
    let now = iterations.start()..requests.count();
    let bytes_now = total_bytes(requests, now.clone());
    let newest = newest.take(MAX_CANDIDATES);
    let begins_equally = newest.clone().map(|index| iterations.range(index)).enumerate().filter(|(_, range)| {
        range.len() > now.len() && requests.sites()[range.clone()].starts_with(&requests.sites()[now.clone()])
    });
    let (back, source) = begins_equally
        .min_by_key(|(_, range)| total_bytes(requests, range.start..range.start + now.len()).abs_diff(bytes_now))?;
    let equal = newest.map(|index| iterations.range(index));
    let equal = equal.filter(|range| requests.sites()[range.clone()] == requests.sites()[source.clone()]);
    Some((iterations.complete() - 1 - back, equal.take(MAX_COMPARED).map(|range| range.start).collect()))
}

fn total_bytes(requests: &Requests, range: Range<RequestId>) -> u64 {
    range.fold(0, |sum, request| sum.saturating_add(requests.bytes(request)))
}

/// `bytes * numerator / denominator`, rounded up to a block.
pub(super) fn in_proportion(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator.max(1));
    round_size(u64::try_from(scaled).unwrap_or(u64::MAX).max(1), &Settings::default())
}

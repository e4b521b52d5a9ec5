//! A recorded program whose requests are functions of the size.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::input::{SizedRecording, SizedRequest};
use super::law::{Law, LawKind};
use super::pairing::{RecordingPairs, pair_with_all};
use super::polynomial::Point;
use super::shape_law::ShapeLaw;
use super::size::Size;
use super::steps::largest_in_any_step;
use crate::base::units::ratio;
use crate::replay::ops::Program;

/// If the laws of more than this share of the growing bytes are underdetermined, the size is probably not the number
/// that the program's tensors depend on.
const MAX_OPEN_RATIO: f64 = 0.5;

/// A recording, with a law for each of its requests that is fitted to it and to other recordings.
#[derive(Debug)]
pub(in crate::whatif) struct FittedProgram<'r, 's, 'a> {
    pub(in crate::whatif) base: &'r SizedRecording<'s, 'a>,
    /// The other recordings, each with its pairs.
    pub(super) others: Vec<(&'r SizedRecording<'s, 'a>, RecordingPairs)>,
    /// `None` for a request that is paired in no other recording, or in too few.
    pub(super) request_laws: Vec<Option<Law>>,
    /// Whether each request changes its size from step to step, in no proportion to another recording. Its law is then
    /// fitted to the largest size in any step.
    pub(super) varies_by_step: Vec<bool>,
    /// The laws of the blocks from before the recording.
    pub(super) initial_laws: Vec<Option<Law>>,
    /// The most common law among requests of the same bytes.
    law_by_bytes: FxHashMap<u64, Law>,
}

impl<'r, 's, 'a> FittedProgram<'r, 's, 'a> {
    /// Fits the requests of `base` to it and to `others`, recordings at other sizes.
    pub(super) fn from_recordings(base: &'r SizedRecording<'s, 'a>, others: &[&'r SizedRecording<'s, 'a>]) -> Self {
        let others: Vec<_> = others.iter().copied().zip(pair_with_all(base, others)).collect();
        let dimensions = base.size.dimensions();
        let law = |own_bytes: u64, index: usize, bytes_of: &dyn Fn(usize, usize) -> Option<u64>| {
            let mut points: Vec<Point> = vec![(base.size.numbers(), own_bytes)];
            for (other_index, (other, _)) in others.iter().enumerate() {
                points.extend(bytes_of(other_index, index).map(|bytes| (other.size.numbers(), bytes)));
            }
            points.sort_unstable();
            let varies_in = |dimension: usize| points.iter().any(|(size, _)| size[dimension] != points[0].0[dimension]);
            // The points have to vary in every number.
            if points.len() <= dimensions || !(0..dimensions).all(varies_in) {
                return None;
            }
            Law::fit(&points)
        };
        let request_bytes = |other: usize, index: usize| {
            let (other, pairs) = &others[other];
            let paired = pairs.requests[index]?;
            other.requests.get(paired as usize).map(|request| request.bytes)
        };
        let by_shape = laws_by_shape(base, &others);
        let largest_in_step = largest_in_any_step(base);
        let largest_elsewhere: Vec<_> = others.iter().map(|(other, _)| largest_in_any_step(other)).collect();
        let varies_by_step = |index: usize| {
            let varies_elsewhere = others.iter().zip(&largest_elsewhere).any(|((_, pairs), largest_in_step)| {
                let paired = pairs.requests[index].and_then(|paired| largest_in_step.get(paired as usize));
                paired.is_some_and(Option::is_some)
            });
            varies_elsewhere || largest_in_step[index].is_some()
        };
        let largest_request_bytes = |other: usize, index: usize| {
            let paired = others[other].1.requests[index]? as usize;
            largest_elsewhere[other].get(paired)?.or_else(|| request_bytes(other, index))
        };
        let initial_bytes = |other: usize, index: usize| {
            let (other, pairs) = &others[other];
            let paired = pairs.initial_blocks[index]?;
            let initial_blocks = &other.program().initial_blocks;
            initial_blocks.get(paired as usize).map(|block| block.requested)
        };
        let stacks = &base.device.snapshot().stacks;
        let requests = base.requests.iter().enumerate();
        let laws = requests.map(|(index, request)| {
            // Proportional growth needs no shape.
            let own_law = match law(request.bytes, index, &request_bytes) {
                Some(Law::Polynomial(sum)) => {
                    let shape = bytes_at_all(base, &others, index).and_then(|bytes| by_shape.get(&bytes));
                    Some(shape.map_or(Law::Polynomial(sum), |shape| Law::Shape(*shape)))
                }
                own_law => own_law,
            };
            // Requests without a stack are paired by their bytes alone, so a curve suggests a wrong pair. With only two
            // recordings no check shows that it is not a line.
            let may_bend = others.len() == 1 || !stacks.frames(request.stack).is_empty();
            let own_law = own_law.filter(|law| may_bend || !law.is_guess());
            // A request in exact proportion between the recordings needs no maximum: the steps have the same data.
            if matches!(own_law, None | Some(Law::Power { .. } | Law::Shape(_))) || !varies_by_step(index) {
                return (own_law, false);
            }
            (law(largest_in_step[index].unwrap_or(request.bytes), index, &largest_request_bytes), true)
        });
        let (request_laws, varies_by_step): (Vec<Option<Law>>, Vec<bool>) = laws.unzip();
        let initial_blocks = base.program().initial_blocks.iter().enumerate();
        let initial_laws = initial_blocks.map(|(index, block)| law(block.requested, index, &initial_bytes));
        let initial = initial_laws.collect();
        let by_bytes = most_common_laws(base, &request_laws);
        Self { base, others, request_laws, varies_by_step, initial_laws: initial, law_by_bytes: by_bytes }
    }

    /// The law to assume for an unpaired request: that of most requests of the same bytes; else in proportion to the
    /// size, as activations do, unless the block is never freed.
    fn assumed_law(&self, request: &SizedRequest) -> Option<Law> {
        let in_proportion = Law::Power { degrees: [1, 1], point: (self.base.size.numbers(), request.bytes) };
        let most_common = self.law_by_bytes.get(&request.bytes).copied();
        most_common.or(request.requests_before_free.map(|_| in_proportion))
    }

    /// The share of the recording's requested bytes that has a law.
    pub(super) fn requested_paired_ratio(&self) -> f64 {
        1.0 - self.requested_ratio(|index| self.request_laws[index].is_none())
    }

    /// The share of the recording's requested bytes whose law is a guess. If the laws of most growing bytes are
    /// underdetermined, all of these count: the program then depends on another number, for example a padded one, or
    /// one with an additional token.
    pub(super) fn guessed_ratio(&self) -> f64 {
        // Varying requests have a warning of their own.
        let share = |is_selected: fn(&Law) -> bool| {
            self.requested_ratio(|index| {
                !self.varies_by_step[index] && self.request_laws[index].is_some_and(|law| is_selected(&law))
            })
        };
        let underdetermined = share(Law::is_underdetermined);
        if underdetermined > share(Law::grows) * MAX_OPEN_RATIO { underdetermined } else { share(Law::is_guess) }
    }

    /// The selected share of all requested bytes.
    fn requested_ratio(&self, is_selected: impl Fn(usize) -> bool) -> f64 {
        let (mut total, mut selected) = (0u64, 0u64);
        for (index, request) in self.base.requests.iter().enumerate() {
            total = total.saturating_add(request.bytes);
            selected = selected.saturating_add(if is_selected(index) { request.bytes } else { 0 });
        }
        ratio(selected, total)
    }

    /// The recorded program with the bytes of `size`. If blocks from before the recording change, the program allocates
    /// them itself, from an empty pool.
    pub(super) fn program_at(&self, size: Size) -> Program<'a> {
        let (requests, initial) = self.bytes_at(size);
        self.base.program().resized(&requests, &initial)
    }

    /// The bytes of each request and of each block from before the recording, at `size`.
    pub(in crate::whatif) fn bytes_at(&self, size: Size) -> (Vec<u64>, Vec<u64>) {
        let bytes_at = |law: &Option<Law>, own_bytes: u64| law.map_or(own_bytes, |law| law.bytes_at(size.numbers()));
        let requests = self.request_laws.iter().zip(&self.base.requests);
        let requests =
            requests.map(|(law, request)| bytes_at(&law.or_else(|| self.assumed_law(request)), request.bytes));
        let initial = self.initial_laws.iter().zip(&self.base.program().initial_blocks);
        let initial = initial.map(|(law, block)| bytes_at(law, block.requested));
        (requests.collect(), initial.collect())
    }
}

/// The bytes of a request in all recordings, if it is paired in each.
fn bytes_at_all(
    base: &SizedRecording<'_, '_>,
    others: &[(&SizedRecording<'_, '_>, RecordingPairs)],
    index: usize,
) -> Option<Vec<u64>> {
    let elsewhere =
        others.iter().map(|(other, pairs)| Some(other.requests.get(pairs.requests[index]? as usize)?.bytes));
    std::iter::once(Some(base.requests[index].bytes)).chain(elsewhere).collect()
}

/// The laws of tensors whose shape is known in all recordings, by their bytes in each. Another request with the same
/// bytes in all of them has a tensor of that shape too, or one that grows in the same way.
fn laws_by_shape(
    base: &SizedRecording<'_, '_>,
    others: &[(&SizedRecording<'_, '_>, RecordingPairs)],
) -> FxHashMap<Vec<u64>, ShapeLaw> {
    let mut laws: FxHashMap<Vec<u64>, ShapeLaw> = FxHashMap::default();
    let law_of = |index: usize, own_shape: &[u64]| {
        let bytes = bytes_at_all(base, others, index)?;
        let sizes = std::iter::once(base.size).chain(others.iter().map(|(other, _)| other.size));
        let points: Vec<Point> = sizes.zip(&bytes).map(|(size, bytes)| (size.numbers(), *bytes)).collect();
        let elsewhere =
            others.iter().map(|(other, pairs)| other.shapes.get(&(pairs.requests[index]? as usize)).copied());
        let shapes: Vec<&[u64]> = std::iter::once(Some(own_shape)).chain(elsewhere).collect::<Option<_>>()?;
        Some((bytes, ShapeLaw::fit(&points, &shapes)?))
    };
    let mut known: Vec<(usize, &[u64])> = base.shapes.iter().map(|(index, shape)| (*index, *shape)).collect();
    known.sort_unstable_by_key(|(index, _)| *index);
    for (bytes, law) in known.into_iter().filter_map(|(index, shape)| law_of(index, shape)) {
        laws.entry(bytes).or_insert(law);
    }
    laws
}

/// The most common law among requests of the same bytes, the simplest of equally common ones.
fn most_common_laws(base: &SizedRecording<'_, '_>, laws: &[Option<Law>]) -> FxHashMap<u64, Law> {
    let simplicity = |kind: LawKind| LawKind::ALL.iter().position(|known| *known == kind);
    let mut law_counts: FxHashMap<_, (usize, Law)> = FxHashMap::default();
    for (request, law) in base.requests.iter().zip(laws) {
        let Some(law) = law else { continue };
        let kinds = [1, 0].map(|dimension| simplicity(law.kind(dimension)));
        law_counts.entry((request.bytes, kinds)).or_insert((0, *law)).0 += 1;
    }
    let mut law_counts: Vec<_> = law_counts.into_iter().collect();
    law_counts.sort_by_key(|((bytes, kinds), (occurrences, _))| (*bytes, *occurrences, Reverse(*kinds)));
    law_counts.into_iter().map(|((bytes, _), (_, law))| (bytes, law)).collect()
}

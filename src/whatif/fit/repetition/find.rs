//! Finds the repetitions that explain all recordings.

use super::super::chunks::Chunks;
use super::super::input::SizedRecording;
use super::super::law::Law;
use super::super::pairing::{RecordingPairs, number_stacks};
use super::body::Body;
use super::body_law::RecordedSize;
use super::count_law::CountLaw;
use super::insertions::{Insertion, find_insertions};
use super::op_sequence::{FreedBlock, OpKind, OpSequence};
use super::regions::{Place, Places, Regions, signed};
use super::repeated::{Freed, PlacedKind, PlacedOp, Repetitions, explicit_place};
use super::side::{Side, Target};
use crate::base::ids::to_u32;

impl Repetitions {
    /// The repetitions that explain the recordings; `None` if there are none. `others` have their pairs by stacks alone,
    /// and are in order of size. The smallest of them may be left out. The base recording must be larger than all.
    pub(in super::super) fn find<'r, 's, 'a>(
        base: &'r SizedRecording<'s, 'a>,
        others: &[(&'r SizedRecording<'s, 'a>, RecordingPairs)],
    ) -> Option<Self> {
        let is_smaller =
            |other: &SizedRecording<'_, '_>| other.requests.len() < base.requests.len() && other.size < base.size;
        let has_initial_pairs = |(other, pairs): &(&SizedRecording<'_, '_>, RecordingPairs)| {
            other.program().initial_blocks.len() == base.program().initial_blocks.len()
                && pairs.initial_blocks.iter().all(Option::is_some)
        };
        let all = || std::iter::once(base).chain(others.iter().map(|(other, _)| *other));
        if !others.iter().all(|(other, _)| is_smaller(other))
            || !others.iter().all(has_initial_pairs)
            || all().any(SizedRecording::ends_in_failure)
        {
            return None;
        }
        let sequences: Vec<OpSequence> = all().map(OpSequence::from_recording).collect::<Option<_>>()?;
        let (base_sequence, other_sequences) = sequences.split_first()?;
        let mut base_tokens = Vec::new();
        let insertions = others.iter().zip(other_sequences).map(|((other, _), sequence)| {
            let [base_numbers, other_numbers] = number_stacks([base, other]);
            base_tokens = base_sequence.tokens(base, &base_numbers);
            find_insertions(&sequence.tokens(other, &other_numbers), &base_tokens)
        });
        let insertions: Vec<Option<Vec<Insertion>>> = insertions.collect();
        let more: Vec<u64> = others.iter().map(|(other, _)| base.size - other.size).collect();
        let own_blocks: Vec<Option<u32>> =
            (0..base.program().initial_blocks.len()).map(|slot| Some(to_u32(slot))).collect();
        let initial_blocks: Vec<Vec<Option<u32>>> =
            std::iter::once(own_blocks).chain(others.iter().map(|(_, pairs)| pairs.initial_blocks.clone())).collect();
        let sides = all().zip(sequences).zip(initial_blocks).map(|((recording, sequence), initial_blocks)| Side {
            recording,
            sequence,
            size: RecordedSize { size: recording.size, extra: 0 },
            initial_blocks,
        });
        let mut sides: Vec<Side<'r, 's, 'a>> = sides.collect();
        // The first and the last repetitions may differ from the others, and small recordings may have no others.
        (0..others.len()).find_map(|skipped| {
            if skipped > 0 {
                sides.remove(1);
            }
            let insertions: Vec<Vec<Insertion>> = insertions[skipped..].iter().cloned().collect::<Option<_>>()?;
            let candidates = Regions::find(&base_tokens, &insertions, &more[skipped..]);
            candidates.into_iter().find_map(|regions| Self::from_regions(&mut sides, regions))
        })
    }

    /// `sides` has the base recording first.
    fn from_regions(sides: &mut [Side<'_, '_, '_>], regions: Regions) -> Option<Self> {
        for (side, extra) in sides.iter_mut().skip(1).zip(&regions.extras) {
            side.size.extra = *extra;
        }
        let base_size = sides.first()?.size.size;
        let points: Vec<(u64, i64)> = sides.iter().skip(1).map(|side| (side.size.size, side.size.extra)).collect();
        let places: Vec<Places<'_>> = sides.iter().map(|side| regions.places(side.size.extra)).collect();
        let chunks = find_chunks(sides, &regions, &places);
        let count = chunks.map(CountLaw::Chunks).or_else(|| CountLaw::fit(base_size, &points))?;
        let bodies = (0..regions.all.len()).map(|region| Body::find(region, &regions, sides, &places));
        let bodies: Vec<Body> = bodies.collect::<Option<_>>()?;
        let ops = 0..sides.first()?.sequence.ops.len();
        let frees = ops.clone().map(|index| match explicit_place(&regions, &bodies, &places[0], index) {
            Some(place) => freed_block(&regions, &bodies, sides, &places, index, place),
            None => Some(Freed::Nothing),
        });
        let frees: Vec<Freed> = frees.collect::<Option<_>>()?;
        let pairs = sides.iter().zip(&places).skip(1).map(|(side, places_of_side)| {
            let mut requests = vec![None; sides[0].recording.requests.len()];
            for index in ops.clone() {
                let place = places[0].at(index);
                let explicit = explicit_place(&regions, &bodies, &places[0], index);
                let place = explicit.map_or(place, |place| shifted(&regions, &bodies, place, side.size.extra));
                let paired = side.sequence.ops.get(places_of_side.index(place)).map(|op| op.kind);
                let is_there = match place {
                    Place::Repeated { region, repetition, .. } => {
                        repetition < regions.all[region].repetitions_with(side.size.extra)
                    }
                    Place::Fixed(_) => true,
                };
                if let (OpKind::Alloc(request), Some(OpKind::Alloc(paired)), true) =
                    (sides[0].sequence.ops[index].kind, paired, is_there)
                {
                    requests[request as usize] = Some(paired);
                }
            }
            RecordingPairs { requests, initial_blocks: side.initial_blocks.clone() }
        });
        let pairs: Vec<RecordingPairs> = pairs.collect();
        drop(places);
        let sequence = OpSequence { ops: sides[0].sequence.ops.clone() };
        let remainders = chunks.map(|chunks| remainder_laws(sides, &pairs, chunks)).unwrap_or_default();
        let found = Self { sequence, regions, bodies, frees, count, pairs, remainders };
        sides.iter().all(|side| found.explains(side)).then_some(found)
    }

    /// Whether the program at the size of a recording makes its operations.
    fn explains(&self, side: &Side<'_, '_, '_>) -> bool {
        let Some(placed) = self.placed_ops(side.size) else { return false };
        let is_made = |(index, (placed, op)): (usize, (&PlacedOp, _))| match (placed.kind, op) {
            (PlacedKind::Alloc { bytes, .. }, OpKind::Alloc(_)) => bytes.is_none() || bytes == side.bytes(index),
            (PlacedKind::Free(FreedBlock::Initial(slot)), OpKind::Free(FreedBlock::Initial(own))) => {
                side.initial_blocks.get(slot as usize) == Some(&Some(own))
            }
            (PlacedKind::Free(block), OpKind::Free(own)) => block == own,
            (PlacedKind::Other, OpKind::Other(_)) => true,
            _ => false,
        };
        let own = side.sequence.ops.iter().map(|op| op.kind);
        placed.len() == own.len() && placed.iter().zip(own).enumerate().all(is_made)
    }
}

/// The place in a recording with `extra` more repetitions of an operation outside of the regular ones.
fn shifted(regions: &Regions, bodies: &[Body], place: Place, extra: i64) -> Place {
    match place {
        Place::Repeated { region, repetition, offset }
            if repetition >= signed(regions.all[region].repetitions) - bodies[region].tail
                && repetition >= bodies[region].head =>
        {
            Place::Repeated { region, repetition: repetition + extra, offset }
        }
        place => place,
    }
}

/// The block that an operation outside of the regular repetitions frees, if it is one rule for all recordings.
fn freed_block(
    regions: &Regions,
    bodies: &[Body],
    sides: &[Side<'_, '_, '_>],
    places: &[Places<'_>],
    index: usize,
    place: Place,
) -> Option<Freed> {
    let own = sides[0].sequence.ops[index].kind;
    if !matches!(own, OpKind::Free(_)) {
        return Some(Freed::Nothing);
    }
    let targets = sides.iter().zip(places).map(|(side, places)| {
        let place = shifted(regions, bodies, place, side.size.extra);
        Some((side.target(places.index(place), places)?, side.size.extra))
    });
    let targets: Vec<(Target, i64)> = targets.collect::<Option<_>>()?;
    let (first, _) = *targets.first()?;
    if targets.iter().all(|(target, _)| *target == first) {
        return Some(match first {
            Target::Initial(slot) => Freed::Initial(slot),
            Target::At(place) => Freed::At(place),
        });
    }
    let from_end = |(target, extra): &(Target, i64)| match target {
        Target::At(Place::Repeated { region, repetition, offset }) => {
            let back = regions.all[*region].repetitions_with(*extra) - repetition;
            Some(Freed::FromEnd { region: *region, back, offset: *offset })
        }
        _ => None,
    };
    let freed = from_end(targets.first()?)?;
    targets.iter().all(|target| from_end(target) == Some(freed)).then_some(freed)
}

/// How data is split, if the last repetition of a recording, or the first in a backward pass, requests less than the
/// others.
fn find_chunks(sides: &[Side<'_, '_, '_>], regions: &Regions, places: &[Places<'_>]) -> Option<Chunks> {
    let requests =
        regions.all.iter().enumerate().flat_map(|(region, of)| (0..of.unit).map(move |offset| (region, offset)));
    let mut requests = requests.flat_map(|(region, offset)| [false, true].map(|is_first| (region, offset, is_first)));
    requests.find_map(|(region, offset, is_first)| {
        let bytes = |side: usize, repetition: i64| {
            sides[side].bytes(places[side].index(Place::Repeated { region, repetition, offset }))
        };
        let full_bytes = bytes(0, places[0].repetitions(region) / 2)?;
        let points = (0..sides.len()).map(|side| {
            let part = if is_first { 0 } else { places[side].repetitions(region) - 1 };
            Some((sides[side].size.size, sides[side].size.extra, bytes(side, part)?))
        });
        Chunks::fit(full_bytes, places[0].repetitions(region), &points.collect::<Option<Vec<_>>>()?)
    })
}

/// The laws of requests whose bytes are in proportion to the last repetition.
fn remainder_laws(sides: &[Side<'_, '_, '_>], pairs: &[RecordingPairs], chunks: Chunks) -> Vec<(usize, Law)> {
    let law = |request: usize| {
        let own = &sides[0].recording.requests[request];
        let others = sides[1..].iter().zip(pairs).map(|(side, pairs)| {
            let paired = pairs.requests[request]? as usize;
            Some((side.size.size, side.recording.requests.get(paired)?.bytes))
        });
        let points = std::iter::once(Some((sides[0].size.size, own.bytes))).chain(others);
        let points: Vec<(u64, u64)> = points.collect::<Option<_>>()?;
        if points.iter().all(|(_, bytes)| *bytes == own.bytes) {
            return None;
        }
        let full_bytes = points.iter().map(|(size, bytes)| {
            let [part, full] = chunks.last_part(*size);
            let scaled = bytes.checked_mul(full)?;
            scaled.is_multiple_of(part).then(|| scaled / part)
        });
        let full_bytes: Vec<u64> = full_bytes.collect::<Option<_>>()?;
        let first = *full_bytes.first()?;
        let law = Law::LastChunk { full_bytes: first, chunks };
        full_bytes.iter().all(|bytes| *bytes == first).then_some((request, law))
    };
    (0..sides[0].recording.requests.len()).filter_map(law).collect()
}

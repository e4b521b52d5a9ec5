//! The operations of a program at any number of repetitions.

use serde::Serialize;

use super::super::input::SizedRecording;
use super::super::law::Law;
use super::super::pairing::RecordingPairs;
use super::body::Body;
use super::body_law::{BodyLaw, RecordedSize};
use super::count_law::CountLaw;
use super::op_sequence::{FreedBlock, OpKind, OpSequence};
use super::regions::{Place, Places, Regions, signed, unsigned};
use crate::base::ids::to_u32;

/// Operations of a predicted program, at most.
const MAX_OPS: usize = 1_000_000;

/// Operations that larger sizes repeat more often, such as those of a layer or of a chunk of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RepeatedOperations {
    /// How many repetitions more there are for each `units` of the size.
    pub repetitions: u64,
    /// Units of the size for each `repetitions`: more than 1 for chunks.
    pub units: u64,
    /// Allocations and frees of one repetition.
    pub operations: usize,
}

/// The repeated ranges of the largest recording, and what each repetition does.
#[derive(Debug)]
pub(in super::super) struct Repetitions {
    pub(super) sequence: OpSequence,
    pub(super) regions: Regions,
    pub(super) bodies: Vec<Body>,
    /// For each operation outside of the regular repetitions: the block that it frees.
    pub(super) frees: Vec<Freed>,
    pub(super) count: CountLaw,
    /// For each other recording that has the same regions.
    pub(super) pairs: Vec<RecordingPairs>,
    /// By the index of the request.
    pub(super) remainders: Vec<(usize, Law)>,
}

/// The block that an operation outside of the regular repetitions frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// It is no free.
    Nothing,
    Initial(u32),
    At(Place),
    /// `back` repetitions before the end of the region.
    FromEnd {
        region: usize,
        back: i64,
        offset: usize,
    },
}

/// An operation of a predicted program.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct PlacedOp {
    /// The index of the operation of the base recording that it repeats.
    pub(in super::super) operation: usize,
    pub(in super::super) kind: PlacedKind,
}

#[derive(Debug, Clone, Copy)]
pub(in super::super) enum PlacedKind {
    /// The request of the base recording, and the bytes if it is in a regular repetition.
    Alloc {
        request: usize,
        bytes: Option<u64>,
    },
    /// A requested block by the index of its operation in the predicted program.
    Free(FreedBlock),
    Other,
}

impl Repetitions {
    /// The operations at `size`; `None` if its repetitions are fewer than those that differ from the others, or too
    /// many to replay.
    pub(in super::super) fn ops_at(&self, size: u64) -> Option<Vec<PlacedOp>> {
        self.placed_ops(RecordedSize { size, extra: self.count.at(size)? })
    }

    /// Whether the operations at `size` are known.
    pub(in super::super) fn has_ops_at(&self, size: u64) -> bool {
        let is_known = |extra: i64| {
            let mut regions = self.regions.all.iter().zip(&self.bodies);
            regions.all(|(region, body)| region.repetitions_with(extra) >= body.head + body.tail)
                && self.regions.places(extra).total(self.sequence.ops.len()) <= MAX_OPS
        };
        self.count.at(size).is_some_and(is_known)
    }

    /// The pairs of the base recording's requests with those of each other recording.
    pub(in super::super) fn take_pairs(&mut self) -> Vec<RecordingPairs> {
        std::mem::take(&mut self.pairs)
    }

    /// Number of operations at `size`.
    pub(in super::super) fn op_count_at(&self, size: u64) -> Option<usize> {
        Some(self.regions.places(self.count.at(size)?).total(self.sequence.ops.len()))
    }

    pub(in super::super) fn report(&self) -> RepeatedOperations {
        let [repetitions, units] = self.count.rate();
        RepeatedOperations { repetitions, units, operations: self.regions.all.iter().map(|region| region.unit).sum() }
    }

    /// The laws of the requests in the regular repetitions and in a smaller one, by their index in the base recording.
    pub(in super::super) fn laws(&self, base: &SizedRecording<'_, '_>) -> Vec<(usize, Law)> {
        let places = self.regions.places(0);
        let ops = self.sequence.ops.iter().enumerate();
        let laws = ops.filter_map(|(index, op)| {
            let (OpKind::Alloc(request), Place::Repeated { region, offset, .. }) = (op.kind, places.at(index)) else {
                return None;
            };
            if explicit_place(&self.regions, &self.bodies, &places, index).is_some() {
                return None;
            }
            let request = request as usize;
            let point = (base.size, base.requests[request].bytes);
            Some((
                request,
                match self.bodies[region].laws[offset].as_ref()? {
                    BodyLaw::Equal(law) => *law,
                    BodyLaw::Varying(_) => Law::Power { degree: 0, point },
                },
            ))
        });
        laws.chain(self.remainders.iter().copied()).collect()
    }

    pub(super) fn placed_ops(&self, size: RecordedSize) -> Option<Vec<PlacedOp>> {
        let places = self.regions.places(size.extra);
        let total = places.total(self.sequence.ops.len());
        if total > MAX_OPS {
            return None;
        }
        let mut placed: Vec<PlacedOp> = Vec::with_capacity(total);
        let mut is_live = vec![false; total];
        let mut next = 0;
        for (region, body) in self.regions.all.iter().zip(&self.bodies) {
            for index in next..region.start {
                self.place_explicit(index, &places, &mut placed, &mut is_live)?;
            }
            let repetitions = region.repetitions_with(size.extra);
            if repetitions < body.head + body.tail {
                return None;
            }
            for repetition in 0..repetitions {
                let recorded = if repetition < body.head {
                    Some(repetition)
                } else {
                    let from_end = repetitions - repetition;
                    (from_end <= body.tail).then(|| signed(region.repetitions) - from_end)
                };
                for offset in 0..region.unit {
                    if let Some(recorded) = recorded {
                        let index = region.start + unsigned(recorded) * region.unit + offset;
                        self.place_explicit(index, &places, &mut placed, &mut is_live)?;
                    } else {
                        let regular = RegularOp { body, repetition, offset, size };
                        let template = region.start + unsigned(body.head) * region.unit + offset;
                        self.place_regular(template, &regular, &places, &mut placed, &mut is_live)?;
                    }
                }
            }
            next = region.end();
        }
        for index in next..self.sequence.ops.len() {
            self.place_explicit(index, &places, &mut placed, &mut is_live)?;
        }
        Some(placed)
    }

    fn place_explicit(
        &self,
        index: usize,
        places: &Places<'_>,
        placed: &mut Vec<PlacedOp>,
        is_live: &mut [bool],
    ) -> Option<()> {
        let op = self.sequence.ops[index];
        let kind = match (op.kind, self.frees[index]) {
            (OpKind::Alloc(request), _) => {
                is_live[placed.len()] = true;
                PlacedKind::Alloc { request: request as usize, bytes: None }
            }
            (_, Freed::Nothing) => PlacedKind::Other,
            (_, Freed::Initial(slot)) => PlacedKind::Free(FreedBlock::Initial(slot)),
            (_, Freed::At(place)) => free(places.index(place), is_live)?,
            (_, Freed::FromEnd { region, back, offset }) => {
                let repetition = places.repetitions(region) - back;
                free(places.index(Place::Repeated { region, repetition, offset }), is_live)?
            }
        };
        placed.push(PlacedOp { operation: op.operation, kind });
        Some(())
    }

    fn place_regular(
        &self,
        template: usize,
        regular: &RegularOp<'_>,
        places: &Places<'_>,
        placed: &mut Vec<PlacedOp>,
        is_live: &mut [bool],
    ) -> Option<()> {
        let op = self.sequence.ops[template];
        let RegularOp { body, repetition, offset, size } = *regular;
        let kind = match (op.kind, body.frees[offset]) {
            (OpKind::Alloc(request), _) => {
                is_live[placed.len()] = true;
                let bytes = body.laws[offset].as_ref()?.bytes_at(size.size, repetition - body.head)?;
                PlacedKind::Alloc { request: request as usize, bytes: Some(bytes) }
            }
            (_, Some(target)) => free(places.index(target.place(repetition, places)?), is_live)?,
            _ => PlacedKind::Other,
        };
        placed.push(PlacedOp { operation: op.operation, kind });
        Some(())
    }
}

/// An operation of a regular repetition.
#[derive(Clone, Copy)]
struct RegularOp<'b> {
    body: &'b Body,
    repetition: i64,
    offset: usize,
    size: RecordedSize,
}

/// The free of the block of operation `index`, if it is live.
fn free(index: usize, is_live: &mut [bool]) -> Option<PlacedKind> {
    let is_live = is_live.get_mut(index)?;
    std::mem::take(is_live).then(|| PlacedKind::Free(FreedBlock::Requested(to_u32(index))))
}

/// The place of an operation of the base recording, if it is not in a regular repetition.
pub(super) fn explicit_place(regions: &Regions, bodies: &[Body], places: &Places<'_>, index: usize) -> Option<Place> {
    let place = places.at(index);
    match place {
        Place::Repeated { region, repetition, .. } => {
            let (body, repetitions) = (&bodies[region], signed(regions.all[region].repetitions));
            (repetition < body.head || repetition >= repetitions - body.tail).then_some(place)
        }
        Place::Fixed(_) => Some(place),
    }
}

//! One repetition of a range: the bytes of its requests, and the blocks that it frees.

use super::body_law::{BodyLaw, COEFFICIENTS, RecordedSize, binomials, value_at};
use super::op_sequence::OpKind;
use super::regions::{Place, Places, Regions, signed, unsigned};
use super::side::{Side, Target};

/// The regular repetitions of a region: all but the first `head` and the last `tail`.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) head: i64,
    pub(super) tail: i64,
    /// By offset.
    pub(super) frees: Vec<Option<BodyFree>>,
    pub(super) laws: Vec<Option<BodyLaw>>,
}

/// The block that an operation of a repetition frees: one of the repetition `direction * i + constant`, if this is
/// repetition `i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BodyFree {
    pub(super) region: usize,
    pub(super) offset: usize,
    /// 1, or -1 if it is mirrored.
    pub(super) direction: i64,
    pub(super) constant: i64,
    /// Whether repetitions are counted from the last one of `region` instead of its first.
    pub(super) is_from_end: bool,
}

impl Body {
    /// The regular repetitions of a region: as many as possible around the middle of the base recording.
    pub(super) fn find(
        region: usize,
        regions: &Regions,
        sides: &[Side<'_, '_, '_>],
        places: &[Places<'_>],
    ) -> Option<Self> {
        let (base, base_places, of) = (sides.first()?, places.first()?, regions.all[region]);
        let repetitions = signed(of.repetitions);
        let middle = (repetitions - 1) / 2;
        if middle + 1 >= repetitions {
            return None;
        }
        let index = |repetition: i64, offset: usize| of.start + unsigned(repetition) * of.unit + offset;
        let target = |repetition: i64, offset: usize| match base.target(index(repetition, offset), base_places)? {
            Target::At(Place::Repeated { region, repetition, offset }) => Some((region, repetition, offset)),
            _ => None,
        };
        let bytes = |repetition: i64, offset: usize| base.bytes(index(repetition, offset));
        let mut frees = vec![None; of.unit];
        let mut coefficients = vec![None; of.unit];
        for offset in 0..of.unit {
            match base.sequence.ops[index(middle, offset)].kind {
                OpKind::Alloc(_) => {
                    let values = (middle..repetitions).take(COEFFICIENTS).map_while(|at| bytes(at, offset));
                    let values: Vec<u64> = values.collect();
                    let [c0, c1, c2] = binomials(&values);
                    // If two are equal, a third one that differs is at the end.
                    let c2 = if c1 == Some(0) { 0 } else { c2.unwrap_or(0) };
                    coefficients[offset] = Some([c0?, c1.unwrap_or(0), c2]);
                }
                OpKind::Free(_) => {
                    let (target_region, first, target_offset) = target(middle, offset)?;
                    let (_, second, _) = target(middle + 1, offset)?;
                    let direction = second - first;
                    if direction.abs() != 1 {
                        return None;
                    }
                    frees[offset] = Some(BodyFree {
                        region: target_region,
                        offset: target_offset,
                        direction,
                        constant: first - direction * middle,
                        is_from_end: false,
                    });
                }
                OpKind::Other(_) => {}
            }
        }
        let is_regular = |repetition: &i64| {
            (0..of.unit).all(|offset| {
                let is_same_free = frees[offset].is_none_or(|free: BodyFree| {
                    base.frees(index(*repetition, offset), free.place(*repetition, base_places), base_places)
                });
                let is_same_size = coefficients[offset]
                    .is_none_or(|all| bytes(*repetition, offset) == value_at(all, *repetition - middle));
                is_same_free && is_same_size
            })
        };
        let mut head = (0..=middle).rev().take_while(is_regular).last()?;
        let last = (middle..repetitions).take_while(is_regular).last()?;
        let mut tail = repetitions - 1 - last;
        // In another recording the repetition with the rest may be a smaller one.
        for (side, places) in sides.iter().zip(places).skip(1) {
            let repetitions = of.repetitions_with(side.size.extra);
            let bytes =
                |repetition: i64, offset| side.bytes(places.index(Place::Repeated { region, repetition, offset }));
            let constant =
                || (0..of.unit).filter(|offset| coefficients[*offset].is_some_and(|[_, c1, c2]| c1 == 0 && c2 == 0));
            let is_like = |repetition: i64, other: i64| {
                constant().all(|offset| bytes(repetition, offset) == bytes(other, offset))
            };
            if head == 0 && repetitions > 2 && !is_like(0, 1) {
                head = 1;
            }
            if tail == 0 && repetitions > 2 && !is_like(repetitions - 1, repetitions - 2) {
                tail = 1;
            }
        }
        let regular = sides.iter().zip(places).map(|(side, places)| {
            let range = head..of.repetitions_with(side.size.extra) - tail;
            (range.end > range.start).then_some((side, places, range))
        });
        let regular: Vec<_> = regular.collect::<Option<_>>()?;
        let mut laws = Vec::with_capacity(of.unit);
        for offset in 0..of.unit {
            let at = |repetition: i64| Place::Repeated { region, repetition, offset };
            if let Some(free) = &mut frees[offset] {
                // Counted from the first or from the last repetition.
                free.is_from_end = *[false, true].iter().find(|is_from_end| {
                    let free = BodyFree { is_from_end: **is_from_end, ..*free };
                    regular.iter().skip(1).all(|(side, places, range)| {
                        side.frees(places.index(at(range.start)), free.place(range.start, places), places)
                    })
                })?;
            }
            let Some(_) = coefficients[offset] else {
                laws.push(None);
                continue;
            };
            let coefficients = regular.iter().map(|(side, places, range)| {
                let first = range.clone().take(COEFFICIENTS);
                let values: Option<Vec<u64>> =
                    first.map(|repetition| side.bytes(places.index(at(repetition)))).collect();
                values.map(|values| binomials(&values))
            });
            let coefficients: Vec<_> = coefficients.collect::<Option<_>>()?;
            let sizes: Vec<RecordedSize> = sides.iter().map(|side| side.size).collect();
            laws.push(Some(BodyLaw::fit(&sizes, &coefficients)?));
        }
        Some(Self { head, tail, frees, laws })
    }
}

impl BodyFree {
    /// The place of the block that repetition `index` frees. It may be right before or after the region, where its
    /// operations are like those of a repetition.
    pub(super) fn place(&self, index: i64, places: &Places<'_>) -> Option<Place> {
        let extra = if self.is_from_end { places.extra } else { 0 };
        let repetition = self.direction * index + self.constant + extra;
        let is_beside = (-1..=places.repetitions(self.region)).contains(&repetition);
        is_beside.then_some(Place::Repeated { region: self.region, repetition, offset: self.offset })
    }
}

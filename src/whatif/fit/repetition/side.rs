//! A recording among others whose repetitions are compared.

use super::super::input::SizedRecording;
use super::body_law::RecordedSize;
use super::op_sequence::{FreedBlock, OpKind, OpSequence};
use super::regions::{Place, Places};
use crate::base::ids::to_u32;

/// A recording, as the repetitions see it.
pub(super) struct Side<'r, 's, 'a> {
    pub(super) recording: &'r SizedRecording<'s, 'a>,
    pub(super) sequence: OpSequence,
    pub(super) size: RecordedSize,
    /// For each initial block of the base recording, that of this one.
    pub(super) initial_blocks: Vec<Option<u32>>,
}

/// Where the block of a free is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Initial(u32),
    At(Place),
}

impl Side<'_, '_, '_> {
    pub(super) fn bytes(&self, index: usize) -> Option<u64> {
        match self.sequence.ops.get(index)?.kind {
            OpKind::Alloc(request) => Some(self.recording.requests[request as usize].bytes),
            _ => None,
        }
    }

    /// Whether the operation at `index` frees the block of the one at `place`.
    pub(super) fn frees(&self, index: usize, place: Option<Place>, places: &Places<'_>) -> bool {
        let Some(OpKind::Free(FreedBlock::Requested(own))) = self.sequence.ops.get(index).map(|op| op.kind) else {
            return false;
        };
        place.is_some_and(|place| places.index(place) == own as usize)
    }

    pub(super) fn target(&self, index: usize, places: &Places<'_>) -> Option<Target> {
        match self.sequence.ops.get(index)?.kind {
            OpKind::Free(FreedBlock::Requested(op)) => Some(Target::At(places.at(op as usize))),
            OpKind::Free(FreedBlock::Initial(slot)) => {
                let base_slot = self.initial_blocks.iter().position(|own| *own == Some(slot))?;
                Some(Target::Initial(to_u32(base_slot)))
            }
            _ => None,
        }
    }
}

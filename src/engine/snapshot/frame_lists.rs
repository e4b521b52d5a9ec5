//! Distinct lists of frames, with 16 bits for each frame while the snapshot has few.

use crate::base::ids::FrameId;
use crate::base::intern::Slices;

/// Distinct lists of frames.
#[derive(Debug, Default)]
pub(super) struct FrameLists {
    /// Empty once a frame needs more than 16 bits.
    narrow: Slices<u16>,
    wide: Slices<FrameId>,
    is_wide: bool,
    /// The frames of the last list.
    buffer: Vec<u16>,
}

/// The frames of a stack, innermost first.
#[derive(Debug, Clone, Copy)]
pub enum FrameIds<'a> {
    /// All ids have 16 bits.
    Narrow(&'a [u16]),
    /// Some id has more.
    Wide(&'a [FrameId]),
}

impl FrameLists {
    /// The id of the list `frames`, stored if it is new.
    pub(super) fn intern(&mut self, frames: &[FrameId]) -> u32 {
        if !self.is_wide {
            self.buffer.clear();
            // An id that does not fit ends the loop.
            self.buffer.extend(frames.iter().map_while(|id| u16::try_from(id.0).ok()));
            if self.buffer.len() == frames.len() {
                return self.narrow.intern(&self.buffer);
            }
            self.widen();
        }
        self.wide.intern(frames)
    }

    /// Moves all lists to `wide`, with the same ids.
    fn widen(&mut self) {
        let narrow = std::mem::take(&mut self.narrow);
        for id in 0..crate::base::ids::to_u32(narrow.len()) {
            let frames: Vec<FrameId> = narrow.get(id).iter().map(|frame| FrameId((*frame).into())).collect();
            self.wide.intern(&frames);
        }
        self.is_wide = true;
    }

    /// The list `id`; empty for an id of another table.
    pub(super) fn get(&self, id: u32) -> FrameIds<'_> {
        if self.is_wide { FrameIds::Wide(self.wide.get(id)) } else { FrameIds::Narrow(self.narrow.get(id)) }
    }

    /// Number of distinct lists.
    pub(super) fn len(&self) -> usize {
        if self.is_wide { self.wide.len() } else { self.narrow.len() }
    }
}

impl<'a> FrameIds<'a> {
    /// No frames.
    pub(super) const EMPTY: Self = Self::Narrow(&[]);

    /// The frames, innermost first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = FrameId> + ExactSizeIterator + Clone + use<'a> {
        (0..self.len()).map(move |index| match self {
            Self::Narrow(ids) => FrameId(ids[index].into()),
            Self::Wide(ids) => ids[index],
        })
    }

    /// Number of frames.
    pub fn len(self) -> usize {
        match self {
            Self::Narrow(ids) => ids.len(),
            Self::Wide(ids) => ids.len(),
        }
    }

    /// Whether there are no frames.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The innermost frame.
    pub fn first(self) -> Option<FrameId> {
        self.iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_ids_when_frames_need_more_bits() {
        let lists = [vec![], vec![7, 65_535], vec![1], vec![65_536, 3], vec![7, 65_535], vec![65_536], vec![1]];
        let lists = lists.map(|list| list.into_iter().map(FrameId).collect::<Vec<_>>());
        let mut interned = FrameLists::default();
        let ids: Vec<u32> = lists.iter().map(|list| interned.intern(list)).collect();
        assert_eq!(ids, [0, 1, 2, 3, 1, 4, 2]);
        assert_eq!(interned.len(), 5);
        for (id, list) in ids.iter().zip(&lists) {
            let found = interned.get(*id);
            assert!(found.iter().eq(list.iter().copied()));
            assert_eq!(found.iter().next(), found.first());
            assert_eq!((found.len(), found.iter().len()), (list.len(), list.len()));
        }
    }
}

//! The program without a line: nothing that the line asks for is asked for.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::change::{Changed, ProgramChange, Sure};
use super::recording::Recording;
use crate::base::ids::{StackId, row};
use crate::stacks::frames::LineId;

/// The lines that hold most at the peak.
pub(super) struct Lines {
    /// Of each block, its line.
    of_blocks: Vec<LineId>,
    /// With what they hold, most first.
    pub(super) largest: Vec<(LineId, u64)>,
}

impl Lines {
    /// The `top` of them.
    pub(super) fn of(recording: &Recording<'_, '_>, top: usize) -> Self {
        let mut of_stack: FxHashMap<StackId, LineId> = FxHashMap::default();
        let line_of = |block: u32| {
            let maker = recording.maker(block);
            *of_stack.entry(maker).or_insert_with(|| recording.device.stacks().line(maker))
        };
        let of_blocks: Vec<LineId> = (0..row(recording.script.blocks.len())).map(line_of).collect();
        let mut held: FxHashMap<LineId, u64> = FxHashMap::default();
        for block in &recording.peak.blocks {
            let bytes = held.entry(of_blocks[*block as usize]).or_default();
            *bytes = bytes.saturating_add(recording.rounded(*block));
        }
        let mut largest: Vec<(LineId, u64)> = held.into_iter().collect();
        largest.sort_by_key(|(line, bytes)| (Reverse(*bytes), *line));
        largest.truncate(top);
        Self { of_blocks, largest }
    }

    /// The program without `line`, which holds so many bytes at the peak.
    pub(super) fn without(
        &self,
        recording: &Recording<'_, '_>,
        (line, bytes_at_peak): (LineId, u64),
    ) -> Changed {
        let mut script = recording.script.clone();
        for (block, of) in script.blocks.iter_mut().zip(&self.of_blocks) {
            if *of == line {
                block.bytes = 0;
            }
        }
        Changed {
            change: ProgramChange::WithoutLine,
            sure: Sure::Exact,
            what: "without what this line asks for".to_owned(),
            line: Some(line),
            bytes_at_peak,
            script,
        }
    }
}

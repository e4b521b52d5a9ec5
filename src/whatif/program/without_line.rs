//! The program without the requests of one source line.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::change::{ChangeCertainty, ChangedProgram, ProgramChange};
use super::recorded_program::RecordedProgram;
use crate::base::ids::{StackId, to_u32};
use crate::stacks::frames::LineId;

/// The source lines that hold most memory at the peak.
pub(super) struct LargestLines {
    line_by_block: Vec<LineId>,
    /// With their bytes at the peak, largest first.
    pub(super) largest: Vec<(LineId, u64)>,
}

impl LargestLines {
    /// Keeps the `top` largest lines.
    pub(super) fn new(recording: &RecordedProgram<'_, '_>, top: usize) -> Self {
        let mut line_by_stack: FxHashMap<StackId, LineId> = FxHashMap::default();
        let line_of = |block: u32| {
            let stack = recording.allocation_stack(block);
            *line_by_stack.entry(stack).or_insert_with(|| recording.device.stacks().line_id(stack))
        };
        let of_blocks: Vec<LineId> = (0..to_u32(recording.script.blocks.len())).map(line_of).collect();
        let mut bytes_by_line: FxHashMap<LineId, u64> = FxHashMap::default();
        for block in &recording.peak.blocks {
            let bytes = bytes_by_line.entry(of_blocks[*block as usize]).or_default();
            *bytes = bytes.saturating_add(recording.rounded_bytes(*block));
        }
        let mut largest: Vec<(LineId, u64)> = bytes_by_line.into_iter().collect();
        largest.sort_by_key(|(line, bytes)| (Reverse(*bytes), *line));
        largest.truncate(top);
        Self { line_by_block: of_blocks, largest }
    }

    /// The program without the requests of `line`, which holds `bytes_at_peak`.
    pub(super) fn without(
        &self,
        recording: &RecordedProgram<'_, '_>,
        (line, bytes_at_peak): (LineId, u64),
    ) -> ChangedProgram {
        let mut script = recording.script.clone();
        for (block, block_line) in script.blocks.iter_mut().zip(&self.line_by_block) {
            if *block_line == line {
                block.bytes = 0;
            }
        }
        ChangedProgram {
            change: ProgramChange::WithoutLine,
            certainty: ChangeCertainty::Exact,
            description: "without the requests of this line".to_owned(),
            line: Some(line),
            other_lines: Vec::new(),
            bytes_at_peak,
            script,
        }
    }
}

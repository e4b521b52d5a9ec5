//! The growth from iteration to iteration that a change leaves.

use super::recorded_program::RecordedProgram;
use crate::allocator::round_size;
use crate::replay::ops::{Script, ScriptOpKind};
use crate::study::iterations::GrowthRate;

/// Growth is gone if less than this part of it is left: most programs leave a scalar behind.
const GONE_PARTS: u64 = 100;

/// The growth of the live memory of `script`, a changed copy of the recorded one, measured at the starts of the recorded
/// iterations; `None` if the recorded program does not grow, or if the change stops it.
pub(super) fn remaining_growth(recording: &RecordedProgram<'_, '_>, script: &Script) -> Option<GrowthRate> {
    let recorded = recording.device.growth()?;
    let rate = GrowthRate::from_live(&live_at(recording, script, &recorded.start_entries))?;
    (rate.bytes_per_iteration >= recorded.bytes_per_iteration / GONE_PARTS).then_some(rate)
}

/// The live bytes of `script` before the first request of each of the ascending `entries` or after it.
fn live_at(recording: &RecordedProgram<'_, '_>, script: &Script, entries: &[usize]) -> Vec<i64> {
    let settings = &recording.device.inferred().hypothesis.settings;
    let operations = &recording.program().operations;
    let mut live_by_entry = Vec::with_capacity(entries.len());
    let mut live = 0i64;
    for op in &script.ops {
        match op.kind {
            ScriptOpKind::Alloc(block) => {
                let entry = operations[op.source as usize].entry_index as usize;
                let passed = entries[live_by_entry.len()..].iter().take_while(|start| **start <= entry).count();
                live_by_entry.extend(std::iter::repeat_n(live, passed));
                if live_by_entry.len() == entries.len() {
                    break;
                }
                let block = &script.blocks[block as usize];
                if !block.is_failed {
                    live = live.saturating_add_unsigned(round_size(block.bytes, settings));
                }
            }
            ScriptOpKind::Free { block, .. } => {
                let bytes = round_size(script.blocks[block as usize].bytes, settings);
                live = live.saturating_sub_unsigned(bytes);
            }
            ScriptOpKind::Other => {}
        }
    }
    live_by_entry
}

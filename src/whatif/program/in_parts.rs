//! A call that computes in parts: the replay of a cure for one that needs too much at once.

use super::change_replay::ChangeReplayer;
use super::find_changes::is_tried_by_default;
use super::freed_calls::CureReplay;
use super::recorded_program::RecordedProgram;
use super::report::ProgramChange;
use crate::study::DeviceStudy;
use crate::whatif::sureness::Sureness;

/// Replays the program of `device` as if each block that it has made since the entry `since`, up to the last failed
/// request, were the first of several `parts`.
pub(crate) fn replay_in_parts(device: DeviceStudy<'_, '_>, since: usize, failed: usize, parts: u64) -> CureReplay {
    if !is_tried_by_default(device) {
        return CureReplay::NotTried;
    }
    let recording = RecordedProgram::from_device(device);
    let mut script = recording.script.clone();
    let is_made = |op: u32| (since..=failed).contains(&recording.entry_index_of(op));
    let is_divided: Vec<bool> = script.blocks.iter().map(|block| block.allocated_at.is_some_and(is_made)).collect();
    for (block, is_divided) in script.blocks.iter_mut().zip(&is_divided) {
        block.bytes = if *is_divided { block.bytes.div_ceil(parts) } else { block.bytes };
    }
    let change = (ProgramChange::InParts, Sureness::Estimate);
    let description = format!("compute in {parts} parts");
    let changed = recording.changed(change, description, |block| is_divided[block as usize], script);
    let row = ChangeReplayer::new(&recording, device.scope().capacity).row_if_served(changed);
    row.map_or(CureReplay::NotServed, |row| CureReplay::Served(Box::new(row)))
}

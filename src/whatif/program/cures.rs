//! Replays of cures that stacks show: freeing what earlier calls of the program left, and computing in parts.

use rustc_hash::{FxHashMap, FxHashSet};

use super::change_replay::ChangeReplayer;
use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange, ProgramRow};
use crate::base::ids::to_u32;
use crate::replay::ops::{ScriptOp, ScriptOpKind};
use crate::study::DeviceStudy;
use crate::study::attribution::KeptGroup;
use crate::whatif::Sureness;

/// The result of a replay for the last failed request.
pub(crate) enum CureReplay {
    Served(Box<ProgramRow>),
    NotServed,
    /// The trace is too long to replay it by default.
    NotTried,
}

/// Replays the program of `device` as if each call of `group` freed what the one before left.
pub(crate) fn replay_without_group(device: DeviceStudy<'_, '_>, group: &KeptGroup) -> CureReplay {
    let Some(recording) = RecordedProgram::by_default(device) else { return CureReplay::NotTried };
    let mut script = recording.script.clone();
    let mut by_entry: FxHashMap<usize, u32> = FxHashMap::default();
    for (index, block) in script.blocks.iter().enumerate() {
        if let Some(op) = block.allocated_at.filter(|_| !block.is_failed && block.freed_at.is_none()) {
            by_entry.entry(recording.entry_index_of(op)).or_insert(to_u32(index));
        }
    }
    let made = group.blocks.iter();
    let made = made.filter_map(|(entry, pass)| Some((*by_entry.get(&(*entry as usize))?, *entry, *pass)));
    let blocks: Vec<_> = made.collect();
    // By trace entry: the blocks that are freed before it, or before the next operation.
    let mut frees: Vec<(u32, u32)> = Vec::new();
    let Some((_, last, _)) = blocks.last().copied() else { return CureReplay::NotServed };
    for (index, (block, _, pass)) in blocks.iter().enumerate() {
        let next = blocks[index..].iter().find(|(.., other)| other != pass).map(|(_, entry, _)| *entry);
        if let Some(before) = next.or_else(|| group.is_over.then_some(last + 1)) {
            frees.push((before, *block));
        }
    }
    let freed: FxHashSet<u32> = frees.iter().map(|(_, block)| *block).collect();
    let mut frees = frees.into_iter().peekable();
    script.ops.clear();
    for op in &recording.script.ops {
        let entry = recording.entry_index_of(op.source);
        if matches!(op.kind, ScriptOpKind::Alloc(_)) {
            while let Some((_, block)) = frees.next_if(|(before, _)| *before as usize <= entry) {
                script.ops.push(ScriptOp::moved_free(op.source, block));
            }
        }
        script.ops.push(*op);
    }
    let change = (ProgramChange::LeftBehind, Sureness::Checked);
    let description = "free what earlier calls left";
    replay_cure(&recording, recording.changed(change, description, |block| freed.contains(&block), script))
}

/// Replays the program of `device` as if each block that it has made since the entry `since`, up to the last failed
/// request, were the first of several `parts`.
pub(crate) fn replay_in_parts(device: DeviceStudy<'_, '_>, since: usize, failed: usize, parts: u64) -> CureReplay {
    let Some(recording) = RecordedProgram::by_default(device) else { return CureReplay::NotTried };
    let change = (ProgramChange::InParts, Sureness::Estimate);
    let description = format!("compute in {parts} parts");
    let made_at = recording.script.blocks.iter().map(|block| Some(recording.entry_index_of(block.allocated_at?)));
    let is_divided: Vec<bool> = made_at.map(|at| at.is_some_and(|at| (since..=failed).contains(&at))).collect();
    let divided =
        recording.resized_by(change, description, |block| is_divided[block as usize], |bytes| bytes.div_ceil(parts));
    replay_cure(&recording, divided)
}

fn replay_cure(recording: &RecordedProgram<'_, '_>, change: ChangedProgram) -> CureReplay {
    let row = ChangeReplayer::new(recording, recording.device.scope().capacity).row_if_served(change);
    row.map_or(CureReplay::NotServed, |row| CureReplay::Served(Box::new(row)))
}

//! Warnings about a trace and about the scope of a study.

use super::device::DeviceStudy;
use super::history::MemoryHistory;
use super::lost_history::LostHistory;
use crate::base::units::{counted, size};
use crate::base::warning::{Code, Warnings};
use crate::replay::literal::LiteralOutcome;
use crate::snapshot::Device;

/// Advice for a recording that starts too late.
const RECORD_EARLIER: &str = "; to see all of it, record before the model is built: \
    torch.cuda.memory._record_memory_history() there, and \
    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") after the work";

/// Warns about the trace of `device`, if it has one.
pub fn warn_about_trace(device: DeviceStudy<'_, '_>, warnings: &mut Warnings) {
    if let Some(history) = device.history() {
        warn_about_scope(device, history, warnings);
        if history.has_changed_settings {
            let (id, changes) = (device.id(), device.inferred().hypothesis.settings_changes.len());
            let message = format!(
                "GPU {id}: settings changed {} at run time, as inferred by replay; figures over time use the settings then in \
                 effect",
                counted(changes as u64, "time")
            );
            warnings.add(Code::SettingsChanged, message);
        }
        warn_about_replay(device.device(), history.outcome, warnings);
    }
}

/// Warns about an empty window and a capacity that is too small.
fn warn_about_scope(device: DeviceStudy<'_, '_>, history: &MemoryHistory, warnings: &mut Warnings) {
    let (id, reserved) = (device.id(), device.peak().reserved_bytes);
    if history.entries == 0 {
        let message = format!(
            "GPU {id}: none of the {} is in the selected part of the trace, so there is no peak, no timeline and no failed \
             request to show",
            counted(history.trace_entries, "trace entry")
        );
        warnings.add(Code::EmptyWindow, message);
    }
    if let Some(capacity) = device.scope().capacity.filter(|capacity| *capacity < reserved) {
        let [capacity, reserved] = [capacity, reserved].map(size);
        let message = format!("GPU {id}: the given capacity is {capacity}, but {reserved} was reserved at once");
        warnings.add(Code::SmallCapacity, message);
    }
}

/// Warns about what the literal replay of `device`'s trace revealed.
pub fn warn_about_replay(device: Device<'_>, outcome: LiteralOutcome, warnings: &mut Warnings) {
    let id = device.id();
    let lost = LostHistory::from_replay(device, outcome);
    if let Some(lost) = lost {
        warnings.add(Code::HistoryLost, format!("GPU {id}: {lost}"));
    }
    if outcome.initial_totals.reserved > 0 {
        // The warning about lost history has given the cause and the advice already.
        let (why, instead) = if lost.is_some() {
            ("", "")
        } else {
            (" (recording started late, or its ring buffer of max_entries wrapped)", RECORD_EARLIER)
        };
        let [reserved, allocated] = [outcome.initial_totals.reserved, outcome.initial_totals.allocated].map(size);
        let message = format!(
            "the trace of GPU {id} does not start with an empty allocator{why}: it starts with {reserved} reserved and \
             {allocated} allocated, reconstructed from the final segments{instead}"
        );
        warnings.add(Code::Truncated, message);
    }
    if outcome.lacks_completions {
        let message = format!(
            "the trace of GPU {id} has no free_completed entries (skip_actions): a block counts as free once the program \
             freed it, although another stream may still have used it"
        );
        warnings.add(Code::FreesNotCompleted, message);
    }
    if outcome.is_inconsistent() {
        warnings.add(Code::TraceInconsistent, describe_inconsistency(device, outcome));
    }
}

fn describe_inconsistency(device: Device<'_>, outcome: LiteralOutcome) -> String {
    let mut found = Vec::new();
    if outcome.contradictions > 0 {
        let (contradictions, entries) = (outcome.contradictions, counted(device.len() as u64, "entry"));
        let first = outcome.first_contradiction.map(|index| format!(", the first at entry {index}"));
        let first = first.unwrap_or_default();
        found.push(format!("{contradictions} of {entries} contradict earlier entries{first}"));
    }
    if outcome.end_differences > 0 {
        let blocks = counted(outcome.end_differences, "block");
        found.push(format!("{blocks} in the snapshot differ from the state at the end of the trace"));
    }
    let why = if device.snapshot().settings.is_some() {
        "entries may be missing (skip_actions, a changed max_entries) or settings changed during the recording"
    } else {
        "this release does not record allocator settings, and none of those tried reproduces the \
         trace; or entries are missing (skip_actions, a changed max_entries)"
    };
    format!("on GPU {} {}: figures over time are estimates; {why}", device.id(), found.join(", and "))
}

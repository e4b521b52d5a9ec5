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
            warnings.add(
                Code::SettingsChanged,
                format!(
                    "GPU {}: settings changed {} at run time, as inferred by replay; figures over time use the settings then in \
                     effect",
                    device.id(),
                    counted(device.inferred().hypothesis.settings_changes.len() as u64, "time")
                ),
            );
        }
        warn_about_replay(device.device(), history.outcome, warnings);
    }
}

/// Warns about an empty window and a capacity that is too small.
fn warn_about_scope(device: DeviceStudy<'_, '_>, history: &MemoryHistory, warnings: &mut Warnings) {
    let (id, reserved) = (device.id(), device.peak().reserved_bytes);
    if history.entries == 0 {
        warnings.add(
            Code::EmptyWindow,
            format!(
                "GPU {id}: none of the {} is in the selected part of the trace, so there is no \
                 peak, no timeline and no failed request to show",
                counted(history.trace_entries, "trace entry")
            ),
        );
    }
    if let Some(capacity) = device.scope().capacity.filter(|capacity| *capacity < reserved) {
        warnings.add(
            Code::SmallCapacity,
            format!("GPU {id}: the given capacity is {}, but {} was reserved at once", size(capacity), size(reserved)),
        );
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
        warnings.add(
            Code::Truncated,
            format!(
                "the trace of GPU {id} does not start with an empty allocator{why}: it starts with {} reserved and {} \
                 allocated, reconstructed from the final segments{instead}",
                size(outcome.initial_totals.reserved),
                size(outcome.initial_totals.allocated)
            ),
        );
    }
    if outcome.lacks_completions {
        warnings.add(
            Code::FreesNotCompleted,
            format!(
                "the trace of GPU {id} has no free_completed entries (skip_actions): a block \
                 counts as free once the program freed it, although another stream may still have \
                 used it"
            ),
        );
    }
    if outcome.is_inconsistent() {
        warnings.add(Code::TraceInconsistent, describe_inconsistency(device, outcome));
    }
}

fn describe_inconsistency(device: Device<'_>, outcome: LiteralOutcome) -> String {
    let mut found = Vec::new();
    if outcome.contradictions > 0 {
        let first = outcome.first_contradiction.map(|index| format!(", the first at entry {index}"));
        found.push(format!(
            "{} of {} contradict earlier entries{}",
            outcome.contradictions,
            counted(device.len() as u64, "entry"),
            first.unwrap_or_default()
        ));
    }
    if outcome.end_differences > 0 {
        found.push(format!(
            "{} in the snapshot differ from the state at the end of the trace",
            counted(outcome.end_differences, "block")
        ));
    }
    let why = if device.snapshot().settings.is_some() {
        "entries may be missing (skip_actions, a changed max_entries) or settings changed during \
         the recording"
    } else {
        "this release does not record allocator settings, and none of those tried reproduces the \
         trace; or entries are missing (skip_actions, a changed max_entries)"
    };
    format!("on GPU {} {}: figures over time are estimates; {why}", device.id(), found.join(", and "))
}

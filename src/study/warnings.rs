//! What a literal replay found odd about a trace.

use crate::facts::Outcome;
use crate::notice::{Code, Warnings};
use crate::snapshot::Device;
use crate::units::{counted, size};

/// Adds to `warnings` what a replay of `device`'s trace found to be odd about it.
pub(crate) fn warn_of_trace(device: Device<'_>, outcome: Outcome, warnings: &mut Warnings) {
    let id = device.id();
    if outcome.start.reserved > 0 {
        warnings.add(
            Code::Truncated,
            format!(
                "the trace of device {id} does not begin at an empty allocator (recording began late, or its ring buffer of max_entries wrapped): it begins with {} reserved and {} allocated, rebuilt from the final segments",
                size(outcome.start.reserved),
                size(outcome.start.allocated)
            ),
        );
    }
    if outcome.lacks_completions {
        warnings.add(
            Code::FreesNotCompleted,
            format!(
                "the trace of device {id} has no free_completed entries (skip_actions): every block is \
                 taken to be free as soon as the program freed it, though another stream may still have used it"
            ),
        );
    }
    if outcome.contradictions > 0 || outcome.end_differences > 0 {
        let message = inconsistency(device, outcome);
        warnings.add(Code::TraceInconsistent, message);
    }
}

fn inconsistency(device: Device<'_>, outcome: Outcome) -> String {
    let mut found = Vec::new();
    if outcome.contradictions > 0 {
        let first = match outcome.first_contradiction {
            Some(index) => format!(", the first at entry {index}"),
            None => String::new(),
        };
        found.push(format!(
            "{} of {} contradict what came before{first}",
            outcome.contradictions,
            counted(device.len() as u64, "entry")
        ));
    }
    if outcome.end_differences > 0 {
        found.push(format!(
            "{} at the end differ from what the trace leads to",
            counted(outcome.end_differences, "block")
        ));
    }
    let why = if device.snapshot().settings.is_some() {
        "entries may be missing (skip_actions, a changed max_entries) or settings were changed on the way"
    } else {
        "this release records no allocator settings, and none that was tried leads to this trace; or entries \
         are missing (skip_actions, a changed max_entries)"
    };
    format!(
        "on device {} {}: figures over time are estimates; {why}",
        device.id(),
        found.join(", and ")
    )
}

//! Whose memory was in the way of a failed request, in phrases that the page and the Markdown share.

use super::words::place_in;
use crate::analysis::{Blocker, OomReport};
use crate::frames::FrameReport;
use crate::memory::HeldByLine;
use crate::units::{counted, size};

/// Stacks with blocks in the way that are told.
const SHOWN_BLOCKERS: usize = 3;
/// Lines whose memory waits for other streams that are told.
const SHOWN_PENDING: usize = 3;

/// What waits for other streams, the most first.
pub(super) fn pending(oom: &OomReport) -> Vec<String> {
    let phrase = |line: &HeldByLine| {
        let is_known = line.operation.is_some();
        format!(
            "{} in {}, allocated at {}",
            size(line.bytes),
            counted(line.blocks, "block"),
            origin(line.frame.as_ref(), line.operation.as_deref(), is_known)
        )
    };
    oom.pending.iter().take(SHOWN_PENDING).map(phrase).collect()
}

/// The blocks that keep free memory apart, those first that keep most for each byte.
pub(super) fn in_the_way(oom: &OomReport) -> Vec<String> {
    let phrase = |it: &Blocker| {
        format!(
            "{}, {}, {}: {}",
            counted(it.blocks, "block"),
            size(it.bytes_held),
            locked(it),
            origin(it.culprit.as_ref(), it.operation.as_deref(), !it.frames.is_empty())
        )
    };
    oom.blockers.iter().take(SHOWN_BLOCKERS).map(phrase).collect()
}

/// The line that allocated, and what it was doing.
fn origin(line: Option<&FrameReport>, operation: Option<&str>, is_recorded: bool) -> String {
    let place = match line {
        Some(frame) => place_in(frame),
        None if is_recorded => "a place outside the user's own code".to_owned(),
        None => "a place that was not recorded".to_owned(),
    };
    match operation {
        Some(operation) => format!("{place}, {operation}"),
        None => place,
    }
}

/// What blocks in the way do to the free memory about them.
fn locked(blocker: &Blocker) -> String {
    let keep = if blocker.blocks == 1 { "keeps" } else { "keep" };
    let (free, released) = (blocker.bytes_unlocked, blocker.bytes_released);
    if released == free {
        return format!("{keep} {} of free memory from going back to the device", size(free));
    }
    let part = match released {
        0 => String::new(),
        _ => format!(" ({} of it could go back to the device without them)", size(released)),
    };
    format!("{keep} {} of free memory apart{part}", size(free))
}

//! Places in the program, and points in its trace.

use crate::analysis::DeviceReport;
use crate::base::units::count;
use crate::output::document::{Text, code, faint, source_location};
use crate::stacks::frames::{BEFORE_RECORDING, CodeLocation, FrameReport, UNKNOWN_NODE};
use crate::study::TracePosition;
use crate::study::attribution::{Category, Confidence};

/// `path:line function`; a page may shorten the path.
pub(crate) fn frame_label(frame: &FrameReport) -> Text {
    match (frame.file.as_str(), frame.line) {
        ("" | "??", _) => code(&*frame.name),
        (file, 0) => source_location(file, &format!(" {}", frame.name)),
        (file, line) => source_location(file, &format!(":{line} {}", frame.name)),
    }
}

/// The place of a stack in one line: its source line, or the autograd node of a backward pass.
pub(crate) fn location_label(location: &CodeLocation) -> Text {
    match (location.backward.as_deref(), &location.frame) {
        (Some(UNKNOWN_NODE), Some(frame)) => faint("backward of ").and(frame_label(frame)),
        (Some(UNKNOWN_NODE), None) => "the backward pass".into(),
        (Some(node), Some(frame)) => code(node).and(faint(" from ")).and(frame_label(frame)),
        (Some(node), None) => code(node),
        (None, Some(frame)) => frame_label(frame),
        (None, None) if location.has_stack => "no line of user code".into(),
        (None, None) if location.before_recording => BEFORE_RECORDING.into(),
        (None, None) => "no stack recorded".into(),
    }
}

/// The point in the trace that figures belong to.
pub(crate) fn describe_position(moment: TracePosition) -> String {
    match moment {
        TracePosition::Snapshot => "at the snapshot".to_owned(),
        TracePosition::Start => "before the first entry".to_owned(),
        TracePosition::Entry { event } => format!("at entry {}", count(event)),
    }
}

/// The same, naming a failed request or the peak if it is there.
pub(crate) fn describe_position_on(device: &DeviceReport, moment: TracePosition) -> String {
    let TracePosition::Entry { event } = moment else { return describe_position(moment) };
    let entry = format!("entry {}", count(event));
    if device.ooms.iter().any(|oom| oom.event == event) {
        format!("at a failed request ({entry})")
    } else if device.peak.allocated_event == Some(event) {
        format!("at the peak of allocated memory ({entry})")
    } else {
        describe_position(moment)
    }
}

/// The words of a category on a page.
pub(crate) fn category_label(category: Category) -> String {
    if category == Category::KvCache { "KV cache".to_owned() } else { category.word().replace('-', " ") }
}

/// `activations`, `activations?` if that is a guess.
pub(crate) fn guessed_label(category: Category, confidence: Confidence) -> String {
    let is_guess = confidence == Confidence::Low && category != Category::Other;
    format!("{}{}", category_label(category), if is_guess { "?" } else { "" })
}

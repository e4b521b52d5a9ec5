//! Pieces that several screens share.

use crate::output::document::{BarKind, BarPart, Document, Text, code};
use crate::stacks::phases::Phase;
use crate::study::attribution::MemoryBreakdown;

/// Adds a part of a bar unless it is empty.
pub(in crate::output::report) fn add_part(parts: &mut Vec<BarPart>, bytes: u64, kind: BarKind, label: impl Into<Text>) {
    if bytes > 0 {
        parts.push(BarPart { bytes, kind, label: label.into() });
    }
}

/// `step 24, forward`
pub(in crate::output::report) fn moment_label(held: Option<&MemoryBreakdown>) -> Option<String> {
    held.and_then(|held| step_label(held.step, held.phase))
}

/// `step 24, forward`
pub(super) fn step_label(step: Option<u32>, phase: Phase) -> Option<String> {
    let phase = match phase {
        Phase::Init => Some("building the model"),
        Phase::Data => Some("before a forward pass"),
        Phase::Forward => Some("forward"),
        Phase::Backward => Some("backward"),
        Phase::Optimizer => Some("optimizer step"),
        Phase::Other => None,
    };
    let step = step.map(|step| format!("step {step}"));
    let parts: Vec<String> = step.into_iter().chain(phase.map(str::to_owned)).collect();
    Some(parts.join(", ")).filter(|label| !label.is_empty())
}

/// A command to paste.
pub(super) fn add_next(document: &mut Document, command: Option<String>) {
    document.fields("next", command.map(code));
}

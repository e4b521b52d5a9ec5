//! Failed and tried requests in full: what the first screen leaves out.

use itertools::Itertools as _;

use super::phrases::{operation_label, stack_block};
use super::screen::add_blockers;
use crate::analysis::failure::JudgedRequest;
use crate::analysis::{DeviceReport, LocalTensors};
use crate::base::units::{count, counted, size, stream};
use crate::output::document::{Document, Text, code};
use crate::output::wording::{location_label, shape_label};
use crate::study::memory::Holder;

/// Maximum number of earlier failed requests listed.
const MAX_EARLIER: usize = 3;
/// Maximum number of lines listed whose memory waits for other streams.
const MAX_PENDING: usize = 3;

/// Appends what the first screen leaves out of the last failed request, and the earlier ones.
pub(super) fn failed_request(document: &mut Document, device: &DeviceReport) {
    // The last failure is the one that ended the program, if any did.
    let Some((last, before)) = device.ooms.split_last() else { return };
    document.heading(format!("The failed request on GPU {}", device.device));
    let entries = device.timeline.as_ref().map_or(0, |timeline| timeline.trace_entries);
    let at = match entries.saturating_sub(last.event.saturating_add(1)) {
        0 => "the last of the trace".to_owned(),
        after => format!("{} before the end of the trace", counted(after, "entry")),
    };
    document.field("entry", format!("{}, {at}", count(last.event)));
    let exact = format!("{} ({} bytes)", size(last.requested_bytes), count(last.requested_bytes));
    document.field("request", format!("{exact} on stream {}", stream(last.stream)));
    document.fields("for", device.local_tensors.as_ref().and_then(describe_request_shape));
    document.fields("tensors", device.local_tensors.as_ref().map(list_tensors));
    document.fields("doing", last.operation.as_deref().map(code));
    document.fields("metadata", last.user_metadata.as_deref());
    circumstances(document, last);
    let earlier = before.iter().rev().take(MAX_EARLIER);
    document
        .fields("earlier", earlier.map(|oom| format!("{} at entry {}", size(oom.requested_bytes), count(oom.event))));
    document.stack(stack_block("stack", &last.frames, last.frames.left_out));
}

/// Maximum number of tensors listed.
const MAX_TENSORS: usize = 8;

/// The tensors of the failing function.
fn list_tensors(locals: &LocalTensors) -> Text {
    let listed = locals.tensors.iter().take(MAX_TENSORS);
    let listed = listed.map(|one| format!("{}: {}", one.name, shape_label(&one.dtype, &one.shape))).format("; ");
    let more = if locals.tensors.len() > MAX_TENSORS { "; ..." } else { "" };
    code(format!("{listed}{more}"))
}

/// The shape that the request could be for.
fn describe_request_shape(locals: &LocalTensors) -> Option<String> {
    let request = locals.request.as_ref()?;
    let shape = shape_label(&request.dtype, &request.shape);
    let last = if request.like == request.last_of { String::new() } else { format!(" and {}", request.last_of) };
    Some(format!("exactly the size of {shape}, with dimensions of {}{last}", request.like))
}

/// The use of memory at the failure.
fn circumstances(document: &mut Document, oom: &JudgedRequest) {
    let missing = format!("{} for a segment of {}", size(oom.shortfall_bytes), size(oom.segment_bytes));
    document.fields("missing", Some(missing).filter(|_| oom.shortfall_bytes > 0));
    let causes = oom.causes.iter().filter(|cause| cause.kind != oom.verdict);
    document.fields("free", causes.map(|cause| format!("{} {}", size(cause.bytes), cause.note)));
    document.fields("pending", oom.pending.iter().take(MAX_PENDING).map(describe_pending));
}

/// Appends details of a tried request that fails.
pub(super) fn tried_request(document: &mut Document, device: &DeviceReport) {
    let Some(request) = &device.request else { return }; // without --request
    if let Err(oom) = &request.outcome {
        document.heading(format!("The request of {} on GPU {}", size(request.asked_bytes), device.device));
        circumstances(document, oom);
        add_blockers(document, oom);
        let released = Some(request.given_back_bytes).filter(|bytes| *bytes > 0).map(size);
        document.fields("released", released.map(|bytes| format!("{bytes} of the cache, before the request failed")));
    }
}

/// Memory of a line that waits for other streams.
fn describe_pending(line: &Holder) -> Text {
    let blocks = counted(line.blocks, "block");
    let held =
        Text::from(format!("{} in {blocks}, allocated at ", size(line.bytes))).and(location_label(&line.location));
    let operation = operation_label(line.operation.as_deref(), line.operation_share_ratio);
    operation.into_iter().fold(held, |held, operation| held.and(", ").and(operation))
}

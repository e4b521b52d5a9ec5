//! Why requests failed, and whether one more would be served.

use super::breakdown::growth;
use super::phrases::{
    describe_memory, describe_oom_position, describe_position_on, describe_remedies, describe_shortage,
    operation_label, remedies_note, stack_block, stack_label, stack_label_in_line,
};
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{Blocker, Growth, OomReport, RequestOutcome};
use crate::analysis::{DeviceReport, LocalTensorReport, LocalTensors};
use crate::base::units::{count, counted, size, stream};
use crate::output::document::{Document, Text, alarm, code, faint, strong};
use crate::output::wording::{describe_input, shape_label};
use crate::stacks::frames::CodeLocation;
use crate::study::memory::LiveByLine;
use crate::whatif::program::{ChangeCertainty, ProgramRow};

/// Maximum number of earlier failed requests listed.
const MAX_EARLIER: usize = 3;
/// Maximum number of blockers listed.
const MAX_BLOCKERS: usize = 3;
/// Maximum number of lines listed whose memory waits for other streams.
const MAX_PENDING: usize = 3;

/// The last failed request in full, and a line on the earlier ones.
pub(super) fn failed_requests(document: &mut Document, device: &DeviceReport) {
    // The last failure is the one that ended the program, if any did.
    let Some((last, before)) = device.ooms.split_last() else { return };
    let title = alarm(format!("Out of memory on device {}", device.device));
    document.heading(title.and(faint(format!(" ({})", describe_oom_position(last, device)))));
    oom(document, last, device);
    let earlier = device.oom_count - 1;
    if earlier > 0 {
        let requests_before: Vec<String> = before
            .iter()
            .rev()
            .take(MAX_EARLIER)
            .map(|oom| format!("{} at entry {}", size(oom.requested_bytes), count(oom.event)))
            .collect();
        let more = if earlier > MAX_EARLIER as u64 { ", ..." } else { "" };
        let requests = counted(earlier, "failed request");
        document.field("earlier", format!("{requests} before that: {}{more}", requests_before.join(", ")));
    }
}

fn oom(document: &mut Document, oom: &OomReport, device: &DeviceReport) {
    let (name, below) = stack_label(&oom.location);
    document.fields("line", [strong(name)].into_iter().chain(below));
    document.field(
        "request",
        format!(
            "{} ({} bytes) on stream {}",
            size(oom.requested_bytes),
            count(oom.requested_bytes),
            stream(oom.stream)
        ),
    );
    document.fields("for", device.local_tensors.as_ref().and_then(describe_request_shape).map(strong));
    document.fields("tensors", device.local_tensors.as_ref().map(list_tensors));
    document.fields("doing", oom.operation.as_deref().map(code));
    document.fields("metadata", oom.user_metadata.as_deref());
    // Growth that explains the failure comes before the verdict.
    let explains = device.explaining_growth(oom).is_some();
    let of_steps = oom.growth.map(|growth| Text::from(describe_growth(growth)));
    let grows =
        of_steps.into_iter().chain(growth(&device.leaks, oom.growth.is_none(), false)).map(strong).collect::<Vec<_>>();
    let verdict = strong(oom.verdict_reason.to_string());
    if explains {
        document.fields("grows", grows);
        document.field(oom.verdict.word(), verdict);
    } else {
        document.field(oom.verdict.word(), verdict);
        document.fields("grows", grows);
    }
    if let Some(input) = &oom.unusual_input {
        document.fields("input", [strong(input.to_string()), describe_input(input).into()]);
    }
    let remedies = describe_remedies(oom).into_iter().map(Text::from);
    document.fields("remedies", remedies.chain(remedies_note(oom).map(faint)));
    document.fields("what to do", device.advice.iter().map(|advice| Text::from(advice.to_string())));
    document.fields("in the program", device.changes.iter().map(describe_change));
    if device.are_changes_skipped {
        document.field("in the program", "not replayed, because the trace is long: run oomscope whatif --program");
    }
    circumstances(document, oom);
    document.stack(stack_block("stack", &oom.frames, oom.frames.left_out));
}

/// Maximum number of tensors listed.
const MAX_TENSORS: usize = 8;

/// The tensors of the failing function.
fn list_tensors(locals: &LocalTensors) -> Text {
    let tensor = |tensor: &LocalTensorReport| format!("{}: {}", tensor.name, shape_label(&tensor.dtype, &tensor.shape));
    let listed: Vec<String> = locals.tensors.iter().take(MAX_TENSORS).map(tensor).collect();
    let more = if locals.tensors.len() > MAX_TENSORS { "; ..." } else { "" };
    code(format!("{}{more}", listed.join("; ")))
}

/// The shape that the request could be for.
fn describe_request_shape(locals: &LocalTensors) -> Option<String> {
    let request = locals.request.as_ref()?;
    let shape = shape_label(&request.dtype, &request.shape);
    Some(if request.like == request.last_of {
        format!("exactly the size of {shape}, with dimensions of {}", request.like)
    } else {
        format!("exactly the size of {shape}, with dimensions of {} and {}", request.like, request.last_of)
    })
}

/// A change to the program, and the result of its replay.
fn describe_change(row: &ProgramRow) -> Text {
    let was = row.peak_reserved_bytes.saturating_add_signed(row.reserved_gain_bytes);
    let serves = match (row.fits, row.serves_failed) {
        (Some(true), _) if row.sure == ChangeCertainty::Guess => "if that is right, this request is served",
        (Some(true), _) if row.goes_on => "every request is served",
        (Some(true), _) => "this request is served, what follows is not known",
        (_, Some(true)) => "this request is served, not all that follow",
        _ => "not enough",
    };
    Text::from(format!(
        "{}: {serves}; peak reserved {} instead of {} ({})",
        row.label(),
        size(row.peak_reserved_bytes),
        size(was),
        row.sure
    ))
}

/// The growth of live memory from step to step.
fn describe_growth(growth: Growth) -> String {
    let why = if growth.explains { "; without that the request would not have failed" } else { "" };
    format!(
        "live memory at this request grew over the last {}, by {} a step and {} in all{why}",
        counted(growth.steps, "step"),
        size(growth.bytes_per_step),
        size(growth.bytes)
    )
}

/// The use of memory at the failure, and the blocks in the way.
fn circumstances(document: &mut Document, oom: &OomReport) {
    document.field("missing", describe_shortage(oom));
    let causes = oom.causes.iter().filter(|cause| cause.kind != oom.verdict);
    let causes = causes.map(|cause| format!("{} {}", size(cause.bytes), cause.note));
    document.fields("at that moment", [describe_memory(oom)].into_iter().chain(causes));
    document.fields("pending", oom.pending.iter().take(MAX_PENDING).map(describe_pending));
    // If live memory fills the device, no block in particular is in the way.
    if oom.verdict == Verdict::Capacity {
        return;
    }
    document.fields("in the way", oom.blockers.iter().take(MAX_BLOCKERS).map(describe_blocker));
}

/// A hypothetical request, and whether it would be served.
pub(super) fn hypothetical_request(document: &mut Document, device: &DeviceReport) {
    let Some(request) = &device.request else { return }; // without --request
    let when = device.moment.map_or_else(String::new, |at| format!(" {}", describe_position_on(device, at)));
    let request_label = format!("{} more on device {}{when}", size(request.asked_bytes), device.device);
    match &request.outcome {
        RequestOutcome::Served(served) => {
            document.heading(format!("{request_label} would be served"));
            document.field(served.request.verdict.word(), served.request.verdict_reason.to_string());
        }
        RequestOutcome::Failed(oom) => {
            document.heading(alarm(format!("{request_label} would fail")));
            document.field(oom.verdict.word(), strong(oom.verdict_reason.to_string()));
            circumstances(document, oom);
            if request.given_back_bytes > 0 {
                let released = size(request.given_back_bytes);
                document.field("", format!("after {released} of the cache was released to the device"));
            }
        }
    }
    document.fields("assumed", request.assumed.iter().map(|assumed| Text::from(assumed.to_string())));
}

/// Memory of a line that waits for other streams.
fn describe_pending(line: &LiveByLine) -> Text {
    let blocks = counted(line.blocks, "block");
    let held = format!("{} in {blocks}, allocated at ", size(line.bytes));
    Text::from(held)
        .and(allocation_site(&line.location, operation_label(line.operation.as_deref(), line.operation_share_ratio)))
}

/// Blocks that separate free memory.
fn describe_blocker(it: &Blocker) -> Text {
    let (blocks, held) = (counted(it.blocks, "block"), size(it.bytes_held));
    Text::from(format!("{blocks}, {held}, {}: ", describe_blocked_memory(it)))
        .and(allocation_site(&it.location, operation_label(it.operation.as_deref(), None)))
}

/// The line and the operation that allocated.
fn allocation_site(location: &CodeLocation, operation: Option<Text>) -> Text {
    let place = stack_label_in_line(location);
    match operation {
        Some(operation) => place.and(", ").and(operation),
        None => place,
    }
}

/// The free memory around blocks in the way.
fn describe_blocked_memory(blocker: &Blocker) -> String {
    let keep = if blocker.blocks == 1 { "keeps" } else { "keep" };
    let (free, released) = (blocker.bytes_unlocked, blocker.bytes_released);
    if released == free {
        return format!("{keep} {} of free memory from going back to the device", size(free));
    }
    let part = match released {
        0 => String::new(),
        _ => format!(" ({} of it could be released without them)", size(released)),
    };
    format!("{keep} {} of free memory apart{part}", size(free))
}

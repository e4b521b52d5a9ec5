//! Why requests failed, and what would become of one more.

use super::held::growth;
use super::words::{
    at_in, entries_after, missing, moment, named, named_in_line, of_remedies, operation, remedies,
    stack, when,
};
use crate::allocator::verdict::Verdict;
use crate::analysis::DeviceReport;
use crate::analysis::failure::{Blocker, Growth, OomReport};
use crate::base::units::{count, counted, size, stream};
use crate::output::document::{Document, Text, alarm, code, faint, strong};
use crate::stacks::frames::CodeLocation;
use crate::study::memory::LiveByLine;
use crate::whatif::program::ProgramRow;

/// Failed requests that are listed beside the one described in full.
const LISTED: usize = 3;
/// Stacks with blocks in the way that are told.
const SHOWN_BLOCKERS: usize = 3;
/// Lines whose memory waits for other streams that are told.
const SHOWN_PENDING: usize = 3;

/// The last failed request in full, and the earlier ones in a line.
pub(super) fn ooms(document: &mut Document, device: &DeviceReport) {
    // The last failure is the one that ended the program, if any did.
    let Some((last, before)) = device.ooms.split_last() else { return };
    let title = alarm(format!("Out of memory on device {}", device.device));
    document.heading(title.and(faint(format!(" ({})", when(last, device)))));
    oom(document, last, device);
    let earlier = device.oom_count - 1;
    if earlier > 0 {
        let told: Vec<String> = before
            .iter()
            .rev()
            .take(LISTED)
            .map(|oom| format!("{} at entry {}", size(oom.requested_bytes), count(oom.event)))
            .collect();
        let more = if earlier > LISTED as u64 { ", ..." } else { "" };
        let requests = counted(earlier, "failed request");
        document.field("earlier", format!("{requests} before that: {}{more}", told.join(", ")));
    }
}

fn oom(document: &mut Document, oom: &OomReport, device: &DeviceReport) {
    let (name, below) = named(&oom.location);
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
    document.fields("doing", oom.operation.as_deref().map(code));
    document.fields("metadata", oom.user_metadata.as_deref());
    // Growth that explains the failure is the first thing to know.
    let explains = device.explained_by_growth(oom).is_some();
    let of_steps = oom.growth.map(|growth| Text::from(in_steps(growth)));
    let grows = of_steps
        .into_iter()
        .chain(growth(&device.leaks, oom.growth.is_none(), false))
        .map(strong)
        .collect::<Vec<_>>();
    let verdict = strong(&*oom.verdict_reason);
    if explains {
        document.fields("grows", grows);
        document.field(oom.verdict.word(), verdict);
    } else {
        document.field(oom.verdict.word(), verdict);
        document.fields("grows", grows);
    }
    let remedies = remedies(oom).into_iter().map(Text::from);
    document.fields(
        "remedies",
        remedies.chain(of_remedies(oom, entries_after(oom, device) == 0).map(faint)),
    );
    document.fields("what to do", device.advice.iter().map(|advice| Text::from(&**advice)));
    document.fields("in the program", device.changes.iter().map(in_the_program));
    if device.changes_left_out {
        document.field(
            "in the program",
            "oomscope whatif --program replays what could be changed there; left out here, because the trace is long",
        );
    }
    circumstances(document, oom);
    document.stack(stack("stack", &oom.frames));
}

/// A change to the program, and what its replay came to.
fn in_the_program(row: &ProgramRow) -> Text {
    let was = row.peak_reserved_bytes.saturating_add_signed(row.reserved_gain_bytes);
    let serves = match (row.fits, row.serves_failed) {
        (Some(true), _) => "every request is served",
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

/// How what is held grew from step to step.
fn in_steps(growth: Growth) -> String {
    let why = if growth.explains { "; without that the request would not have failed" } else { "" };
    format!(
        "memory held at this request grew over the last {}, by {} a step and {} in all{why}",
        counted(growth.steps, "step"),
        size(growth.bytes_per_step),
        size(growth.bytes)
    )
}

/// The memory at that moment, and what is in the way.
fn circumstances(document: &mut Document, oom: &OomReport) {
    document.field("missing", missing(oom));
    let causes = oom.causes.iter().filter(|cause| cause.kind != oom.verdict);
    let causes = causes.map(|cause| format!("{} {}", size(cause.bytes), cause.note));
    document.fields("at that moment", [moment(oom)].into_iter().chain(causes));
    document.fields("pending", oom.pending.iter().take(SHOWN_PENDING).map(pending));
    // Where everything is held nothing in particular is in the way.
    if oom.verdict == Verdict::Capacity {
        return;
    }
    document.fields("in the way", oom.blockers.iter().take(SHOWN_BLOCKERS).map(in_the_way));
}

/// One more request, and what would become of it.
pub(super) fn request(document: &mut Document, device: &DeviceReport) {
    let Some(request) = &device.request else { return };
    let oom = &request.outcome;
    let when = device.moment.map_or_else(String::new, |at| format!(" {}", at_in(device, at)));
    let asked = format!("{} more on device {}{when}", size(request.asked_bytes), device.device);
    if request.served_from.is_some() {
        document.heading(format!("{asked} would be served"));
        document.field(oom.verdict.word(), &*oom.verdict_reason);
    } else {
        document.heading(alarm(format!("{asked} would fail")));
        document.field(oom.verdict.word(), strong(&*oom.verdict_reason));
        circumstances(document, oom);
        if request.given_back_bytes > 0 {
            let back = size(request.given_back_bytes);
            document.field("", format!("after {back} of the cache was given back to the device"));
        }
    }
    document.fields("assumed", request.assumed.iter().map(|assumed| Text::from(&**assumed)));
}

/// What waits for other streams.
fn pending(line: &LiveByLine) -> Text {
    let blocks = counted(line.blocks, "block");
    let held = format!("{} in {blocks}, allocated at ", size(line.bytes));
    Text::from(held).and(origin(
        &line.location,
        operation(line.operation.as_deref(), line.operation_share_ratio),
    ))
}

/// The blocks that keep free memory apart.
fn in_the_way(it: &Blocker) -> Text {
    let (blocks, held) = (counted(it.blocks, "block"), size(it.bytes_held));
    Text::from(format!("{blocks}, {held}, {}: ", locked(it)))
        .and(origin(&it.location, operation(it.operation.as_deref(), None)))
}

/// The line that allocated, and what it was doing.
fn origin(location: &CodeLocation, operation: Option<Text>) -> Text {
    let place = named_in_line(location);
    match operation {
        Some(operation) => place.and(", ").and(operation),
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

//! A recording without a failed request, a state without a trace, memory at a chosen moment, and a request that is tried.

use super::holders::{add_growth, add_holders};
use super::parts::{add_next, add_part};
use super::sleep::{add_memory_on_device, add_sleep};
use crate::analysis::{DeviceReport, DryRunReport, SnapshotReport};
use crate::base::units::counted;
use crate::output::document::{BarKind, Document, Text, amount, code, faint, strong};
use crate::output::report::notes::add_notes;
use crate::output::report::phrases::{describe_engines, describe_private_pools};
use crate::output::wording::{command_line, describe_position_on, describe_request, summarize_device, usage_headline};

/// A recording without a failed request, a state without a trace, or a moment that the user chose.
pub(super) fn usage(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, rows: usize) {
    let has_trace = device.history().is_some();
    let answer = match device.moment {
        Some(moment) => strong(describe_position_on(device, moment)).and(format!(", GPU {}", device.device)),
        None => usage_headline(snapshot, device),
    };
    document.headline(answer, faint(context(snapshot, device)));
    add_notes(document, &snapshot.warnings);
    match device.sleep.as_ref().filter(|_| has_trace && device.moment.is_none()) {
        Some(sleep) => add_memory_on_device(document, snapshot, device, sleep),
        None => add_memory(document, snapshot, device, has_trace && device.moment.is_none()),
    }
    let held = device.at_moment.as_ref().or(device.at_peak.as_ref().filter(|_| device.moment.is_none()));
    document.fields("pools", describe_private_pools(&device.memory, held));
    document.fields("engine", describe_engines(held));
    if let Some(sleep) = &device.sleep {
        add_sleep(document, sleep, (sleep.asleep_bytes, "at the end"));
    }
    let grows = !device.leaks.suspects.is_empty() && device.moment.is_none();
    if grows {
        add_growth(document, device, rows.min(3));
    }
    add_holders(document, device, held, rows);
    add_action(document, snapshot, device);
}

fn context(snapshot: &SnapshotReport, device: &DeviceReport) -> String {
    let steps = Some(device.steps.completed).filter(|steps| *steps > 0).map(|steps| counted(steps, "step"));
    let parts: Vec<String> = steps.into_iter().chain([format!("PyTorch {}", snapshot.torch_version)]).collect();
    parts.join(", ")
}

/// Live memory, its peak, and reserved memory, of the device if its size is known.
fn add_memory(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, with_peak: bool) {
    let (memory, peak) = (&device.memory, &device.peak);
    let mut parts = Vec::new();
    let allocated = memory.allocated_bytes;
    let at_least = if peak.is_lower_bound { "at least " } else { "" };
    let (peak_allocated, peak_reserved) = if with_peak {
        (peak.allocated_bytes.max(allocated), peak.reserved_bytes.max(memory.reserved_bytes))
    } else {
        (allocated, memory.reserved_bytes)
    };
    let when = if with_peak { " at the end" } else { "" };
    add_part(&mut parts, allocated, BarKind::Allocated, amount(allocated).and(format!(" allocated{when}")));
    let grown = Text::from(format!("up to {at_least}")).and(amount(peak_allocated)).and(" at the peak");
    add_part(&mut parts, peak_allocated - allocated, BarKind::Peak, grown);
    let reserved = Text::from(at_least).and(amount(peak_reserved)).and(" reserved");
    add_part(&mut parts, peak_reserved.saturating_sub(peak_allocated), BarKind::Cached, reserved);
    let outside = snapshot.dry_run.as_ref().map_or(0, DryRunReport::outside_bytes);
    let reach = device.capacity_bytes.map_or(0, |capacity| capacity.saturating_sub(outside));
    let free = reach.saturating_sub(peak_reserved);
    add_part(&mut parts, free, BarKind::Free, amount(free).and(" more on the device"));
    add_part(&mut parts, outside, BarKind::Outside, amount(outside).and(" outside PyTorch"));
    document.bar(parts);
}

fn add_action(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport) {
    let summary = summarize_device(snapshot, device);
    document.fields("do", summary.action);
    document.fields("copy", summary.copy.filter(|text| !text.contains(".py:")).map(code));
    if device.timeline.is_some() {
        add_next(document, command_line("report -o memory.html", &snapshot.path));
    } else {
        add_next(document, command_line("analyze --full", &snapshot.path));
    }
}

/// The answer to `--request`.
pub(super) fn requested(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, rows: usize) {
    let Some(request) = &device.request else { return };
    let when = device.moment.map_or_else(String::new, |moment| describe_position_on(device, moment));
    let (answer, why) = describe_request(device, request);
    document.headline(answer, faint(when));
    add_notes(document, &snapshot.warnings);
    add_memory(document, snapshot, device, false);
    document.field("why", why);
    document.fields("if", request.assumed.iter().map(|assumed| Text::from(assumed.to_string())));
    add_holders(document, device, device.at_moment.as_ref(), rows);
}

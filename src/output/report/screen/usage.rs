//! A recording without a failed request, a state without a trace, memory at a chosen moment, and a request that is tried.

use itertools::Itertools as _;

use super::holders::{add_growth, add_holders};
use crate::analysis::{DeviceReport, DryRunReport, SnapshotReport};
use crate::base::units::{count, counted, size};
use crate::output::document::{BarKind, BarPart, Document, Table, Text, amount, code, faint, strong};
use crate::output::report::notes::add_notes;
use crate::output::report::phrases::{describe_engines, describe_private_pools};
use crate::output::wording::{command_line, describe_position_on, describe_request, summarize_device, usage_headline};
use crate::snapshot::SleepCall;
use crate::study::sleep::{SleepReport, SleepSwitch};

/// A recording without a failed request, a state without a trace, or a moment that the user chose.
pub(super) fn usage(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, rows: usize) {
    let has_trace = device.history().is_some();
    let answer = match device.moment {
        Some(moment) => strong(describe_position_on(device, moment)).and(format!(", GPU {}", device.device)),
        None => usage_headline(snapshot, device),
    };
    document.headline(answer, faint(context(snapshot, device)));
    add_notes(document, &snapshot.warnings);
    add_memory(document, snapshot, device, has_trace && device.moment.is_none());
    let held = device.at_moment.as_ref().or(device.at_peak.as_ref().filter(|_| device.moment.is_none()));
    document.fields("pools", describe_private_pools(&device.memory, held));
    document.fields("engine", describe_engines(held));
    if let Some(sleep) = &device.sleep {
        add_sleep(document, sleep, (sleep.asleep_bytes, "at the end"));
    }
    if !device.leaks.suspects.is_empty() && device.moment.is_none() {
        add_growth(document, device, rows.min(3));
    }
    add_holders(document, device, held, rows);
    add_action(document, snapshot, device);
}

fn context(snapshot: &SnapshotReport, device: &DeviceReport) -> String {
    let steps = Some(device.steps.completed).filter(|steps| *steps > 0).map(|steps| counted(steps, "step"));
    steps.into_iter().chain([format!("PyTorch {}", snapshot.torch_version)]).join(", ")
}

/// Live memory, its peak, and reserved memory, of the device if its size is known. Where memory sleeps, what PyTorch holds
/// of the device now and at most.
fn add_memory(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, with_peak: bool) {
    let (memory, peak) = (&device.memory, &device.peak);
    let allocated = memory.allocated_bytes;
    let at_least = if peak.is_lower_bound { "at least " } else { "" };
    let (peak_allocated, peak_reserved) = if with_peak {
        (peak.allocated_bytes.max(allocated), peak.reserved_bytes.max(memory.reserved_bytes))
    } else {
        (allocated, memory.reserved_bytes)
    };
    let when = if with_peak { " at the end" } else { "" };
    let grown = Text::from(format!("up to {at_least}")).and(amount(peak_allocated)).and(" at the peak");
    let reserved = Text::from(at_least).and(amount(peak_reserved)).and(" reserved");
    let cached = peak_reserved.saturating_sub(peak_allocated);
    let (used, parts) = if let Some(sleep) = device.sleep.as_ref().filter(|_| with_peak) {
        let now = memory.reserved_bytes.saturating_sub(sleep.asleep_bytes);
        let most = sleep.peak_on_device_bytes.max(now);
        let parts = vec![
            BarPart::new(now, BarKind::Allocated, amount(now).and(" reserved at the end")),
            BarPart::new(most - now, BarKind::Peak, format!("up to {} at the peak", size(most))),
        ];
        (most, parts)
    } else {
        let parts = vec![
            BarPart::new(allocated, BarKind::Allocated, amount(allocated).and(format!(" allocated{when}"))),
            BarPart::new(peak_allocated - allocated, BarKind::Peak, grown),
            BarPart::new(cached, BarKind::Cached, reserved),
        ];
        (peak_reserved, parts)
    };
    let outside = snapshot.dry_run.as_ref().map_or(0, DryRunReport::outside_bytes);
    let reach = device.capacity_bytes.map_or(0, |capacity| capacity.saturating_sub(outside));
    let free = reach.saturating_sub(used);
    document.bar(parts.into_iter().chain([
        BarPart::new(free, BarKind::Free, amount(free).and(" more on the device")),
        BarPart::new(outside, BarKind::Outside, amount(outside).and(" outside PyTorch")),
    ]));
}

fn add_action(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport) {
    let summary = summarize_device(snapshot, device);
    document.fields("do", summary.action);
    document.fields("copy", summary.copy.filter(|text| !text.contains(".py:")).map(code));
    let next = if device.timeline.is_some() { "report -o memory.html" } else { "analyze --full" };
    document.fields("next", command_line(next, &snapshot.path).map(code));
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

/// The last of the changes are listed: two of each kind.
const MAX_CHANGES: usize = 4;

/// Appends the bytes that sleep at a time, and the last changes.
pub(super) fn add_sleep(document: &mut Document, sleep: &SleepReport, (asleep_bytes, when): (u64, &str)) {
    let mut holders = sleep.changes.iter().flat_map(|change| &change.allocated);
    let engine = holders.find_map(|(engine, _)| *engine).map_or("the engine", |engine| engine.name);
    if asleep_bytes > 0 {
        let asleep = size(asleep_bytes);
        document
            .field("asleep", format!("{asleep} of {engine} {when}: PyTorch counts it, the device does not hold it"));
    }
    let calls = sleep.changes.iter().filter(|change| change.call != SleepCall::Snapshot).collect_vec();
    let table = Table::from_rows(calls[calls.len().saturating_sub(MAX_CHANGES)..].iter().copied())
        .text("sleep mode", |change| {
            let what = if change.call == SleepCall::WakeUp { "wakes up" } else { "sleeps" };
            let at = change.event.map_or_else(String::new, |event| format!(", entry {}", count(event)));
            format!("{engine} {what}{at}")
        })
        .number("reserved on the device", |change| amount(change.on_device_bytes))
        .number("asleep", |change| amount(change.asleep_bytes))
        .number(format!("{engine} allocated"), |change| amount(allocated_by(change, true)))
        .number("the rest", |change| amount(allocated_by(change, false)));
    document.table(table.wide());
}

fn allocated_by(change: &SleepSwitch, is_engine: bool) -> u64 {
    change.allocated.iter().filter(|(engine, _)| engine.is_some() == is_engine).map(|(_, bytes)| bytes).sum()
}

//! Memory that sleeps, and who holds what of the device when an engine sleeps or wakes.

use super::parts::add_part;
use crate::analysis::{DeviceReport, DryRunReport, SnapshotReport};
use crate::base::units::{count, size};
use crate::output::document::{BarKind, Document, Table, amount};
use crate::snapshot::SleepCall;
use crate::study::sleep::{SleepReport, SleepSwitch};

/// The last of the changes are listed: two of each kind.
const MAX_CHANGES: usize = 4;

/// Appends what PyTorch holds of the device now and at most, without memory that sleeps.
pub(super) fn add_memory_on_device(
    document: &mut Document,
    snapshot: &SnapshotReport,
    device: &DeviceReport,
    sleep: &SleepReport,
) {
    let now = device.memory.reserved_bytes.saturating_sub(sleep.asleep_bytes);
    let peak = sleep.peak_on_device_bytes.max(now);
    let outside = snapshot.dry_run.as_ref().map_or(0, DryRunReport::outside_bytes);
    let reach = device.capacity_bytes.map_or(0, |capacity| capacity.saturating_sub(outside));
    let free = reach.saturating_sub(peak);
    let mut parts = Vec::new();
    add_part(&mut parts, now, BarKind::Allocated, amount(now).and(" reserved at the end"));
    add_part(&mut parts, peak - now, BarKind::Peak, format!("up to {} at the peak", size(peak)));
    add_part(&mut parts, free, BarKind::Free, amount(free).and(" more on the device"));
    add_part(&mut parts, outside, BarKind::Outside, amount(outside).and(" outside PyTorch"));
    document.bar(parts);
}

/// Appends the bytes that sleep at a time, and the last changes.
pub(super) fn add_sleep(document: &mut Document, sleep: &SleepReport, (asleep_bytes, when): (u64, &str)) {
    let mut holders = sleep.changes.iter().flat_map(|change| &change.allocated);
    let engine = holders.find_map(|held| held.engine).map_or("the engine", |engine| engine.name);
    if asleep_bytes > 0 {
        let asleep = size(asleep_bytes);
        document
            .field("asleep", format!("{asleep} of {engine} {when}: PyTorch counts it, the device does not hold it"));
    }
    let calls = || sleep.changes.iter().filter(|change| change.call != SleepCall::Snapshot);
    let allocated_by = |change: &SleepSwitch, is_engine: bool| -> u64 {
        let wanted = change.allocated.iter().filter(|held| held.engine.is_some() == is_engine);
        wanted.map(|held| held.bytes).sum()
    };
    let name = |change: &&SleepSwitch| {
        let what = if change.call == SleepCall::WakeUp { "wakes up" } else { "sleeps" };
        let at = change.event.map_or_else(String::new, |event| format!(", entry {}", count(event)));
        format!("{engine} {what}{at}")
    };
    let table = Table::from_rows(calls().skip(calls().count().saturating_sub(MAX_CHANGES)))
        .text("sleep mode", name)
        .number("reserved on the device", |change| amount(change.on_device_bytes))
        .number("asleep", |change| amount(change.asleep_bytes))
        .number(format!("{engine} allocated"), |change| amount(allocated_by(change, true)))
        .number("the rest", |change| amount(allocated_by(change, false)));
    document.table(table.wide());
}

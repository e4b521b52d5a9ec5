//! The page of `oomscope replay`.

use super::phrases::{add_failed_requests, begin_replay_page};
use crate::base::units::{count, counted, size};
use crate::output::document::{Document, Table, alarm};
use crate::output::wording::describe_what_if;
use crate::study::LostHistory;
use crate::whatif::{ReplayReport, ReplayedDevice, SettingsFrom};

/// Lays out `report`.
pub fn replay(report: &ReplayReport) -> Document {
    let mut document = Document::default();
    begin_replay_page(
        &mut document,
        &report.path,
        Some(&report.summary()),
        &report.torch_version,
        report.settings_string.as_deref(),
        &report.warnings,
    );
    if report.devices.is_empty() {
        document.paragraph("No device has memory or a trace: there is nothing to replay.");
    }
    for device in &report.devices {
        match &device.recorded {
            None => verified(&mut document, device),
            Some(recorded) => what_if(&mut document, device, recorded),
        }
    }
    document
}

fn verified(document: &mut Document, device: &ReplayedDevice) {
    let recorded = device.events.recorded;
    let matched = device.events.matched.unwrap_or(0); // a device without a trace has nothing to match
    let name = device.device;
    if recorded == 0 {
        return document.heading(format!("Device {name}: no trace to replay"));
    }
    if device.exact.is_none() {
        document.heading(format!("Device {name}: one entry shows no decision to reproduce"));
        return document.paragraph(format!("{}.", LostHistory::RingOfOne));
    }
    document.heading(if device.exact == Some(true) {
        format!("Device {name}: every recorded decision was reproduced").into()
    } else {
        alarm(format!("Device {name}: the model diverges from the recording"))
    });
    document.field("entries", format!("{} of {} reproduced", count(matched as u64), count(recorded as u64)));
    if let Some(divergence) = &device.first_divergence {
        let at = count(divergence.event as u64);
        document.field("diverges", format!("at entry {at}: {}", divergence.why));
    }
    start(document, device);
    document.field(
        "end",
        match device.end_differences {
            Some(0) => "all segments and blocks as in the snapshot".to_owned(),
            Some(n) if device.exact == Some(true) => {
                format!("{} differ from the snapshot's", counted(n as u64, "segment"))
            }
            _ => "not compared: the replay stopped before the end".to_owned(),
        },
    );
    assumed(document, device);
    if device.ambiguous_calls > 0 {
        let calls = counted(device.ambiguous_calls as u64, "call");
        document.field(
            "ambiguous",
            format!(
                "{calls} with several possible readings; the count of retries may be off by as \
                 many"
            ),
        );
    }
    figures(document, device, None);
    add_failed_requests(document, &device.ooms);
}

fn what_if(document: &mut Document, device: &ReplayedDevice, recorded: &ReplayedDevice) {
    let name = device.device;
    if device.events.recorded == 0 {
        return document.heading(format!("Device {name}: no trace to replay"));
    }
    let title = format!("Device {name}: {}", describe_what_if(device, recorded));
    document.heading(if device.ooms.is_empty() { title.into() } else { alarm(title) });
    start(document, device);
    assumed(document, device);
    figures(document, device, Some(recorded));
    add_failed_requests(document, &device.ooms);
}

fn start(document: &mut Document, device: &ReplayedDevice) {
    if device.start == "reconstructed" {
        document.field(
            "start",
            "not recorded; reconstructed by undoing the trace from the final segments, so totals and \
             peaks count from there",
        );
    }
}

fn assumed(document: &mut Document, device: &ReplayedDevice) {
    let assumed = &device.assumed;
    if let Some(capacity) = assumed.capacity_bytes {
        document.field("device", format!("{} within reach", size(capacity)));
    }
    if let Some(limit) = assumed.limit_bytes {
        document.field("limit", format!("the process may reserve {}", size(limit)));
    }
    if let Some(trigger) = assumed.collection_trigger_bytes {
        document.field("inferred", format!("garbage collection starts at {} reserved (not recorded)", size(trigger)));
    }
    for [a, b] in &assumed.no_split_pools {
        document.field("pool", format!("({a}, {b}) splits no blocks (inferred from its use)"));
    }
    settings_changes(document, device);
    for setting in &assumed.settings {
        document.field("inferred", format!("{setting} (not recorded by this release)"));
    }
}

/// Maximum number of changes of settings listed.
const MAX_CHANGES: usize = 8;

fn settings_changes(document: &mut Document, device: &ReplayedDevice) {
    let changes = &device.assumed.settings_changes;
    let options = |change: &SettingsFrom| match &*change.settings_string {
        "" => "default".to_owned(),
        options => options.to_owned(),
    };
    for (before, after) in changes.iter().zip(changes.iter().skip(1)).take(MAX_CHANGES) {
        let at = if after.event == device.events.recorded {
            "after the last entry".to_owned()
        } else {
            format!("at about entry {}", count(after.event as u64))
        };
        let (before, after) = (options(before), options(after));
        document.field("settings", format!("change {at}: {before} -> {after} (inferred)"));
    }
    if let Some(more @ 1..) = changes.len().checked_sub(MAX_CHANGES + 1) {
        let changes = counted(more as u64, "more time");
        document.field("settings", format!("change {changes}"));
    }
}

fn figures(document: &mut Document, device: &ReplayedDevice, recorded: Option<&ReplayedDevice>) {
    type Figure = (&'static str, fn(&ReplayedDevice) -> String);
    let figures: [Figure; 6] = [
        ("peak reserved", |d| size(d.peak_reserved_bytes)),
        ("peak allocated", |d| size(d.peak_allocated_bytes)),
        ("device allocations", |d| count(d.device_allocs)),
        ("device frees", |d| count(d.device_frees)),
        ("retries", |d| count(d.retries)),
        ("failed requests", |d| count(d.ooms.len() as u64)),
    ];
    let rows = figures.iter().map(|(name, figure)| {
        let mut row = vec![(*name).to_owned()];
        row.extend(recorded.map(figure));
        row.push(figure(device));
        row
    });
    let header: &[&str] = match recorded {
        Some(_) => &["", "recorded", "what-if"],
        None if device.exact == Some(true) => &["", "replayed"],
        None => &["", "recorded"],
    };
    document.table(Table::new(header, &[0], rows));
}

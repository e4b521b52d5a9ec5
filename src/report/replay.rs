//! The page of `oomscope replay`.

use super::sheet::Page;
use super::style::Style;
use super::words::rules;
use crate::units::{count, counted, plain, size};
use crate::whatif::{ReplayReport, ReplayedDevice};

/// Failed requests that are listed.
const SHOWN_OOMS: usize = 5;

/// The page for a person.
pub fn replay_page(report: &ReplayReport, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(&style.heading(&plain(&report.path)));
    page.text(&rules(&report.torch_version, report.settings_string.as_deref()));
    page.warnings(&report.warnings);
    if report.devices.is_empty() {
        page.text("No device has memory or a trace: there is nothing to replay.");
    }
    for device in &report.devices {
        page.line("");
        match &device.recorded {
            None => page.verified(device),
            Some(recorded) => page.what_if(device, recorded),
        }
    }
    page.out
}

impl Page {
    fn verified(&mut self, device: &ReplayedDevice) {
        let recorded = device.events.recorded;
        let matched = device.events.matched.unwrap_or(0);
        let name = device.device;
        let title = if recorded == 0 {
            format!("Device {name}: no trace to replay")
        } else if device.exact == Some(true) {
            format!("Device {name}: every recorded decision was reproduced")
        } else {
            self.style.alarm(&format!("Device {name}: the model and the recording part"))
        };
        self.line(&self.style.heading(&title));
        self.named(
            "entries",
            &format!("{} of {} reproduced", count(matched as u64), count(recorded as u64)),
        );
        if let Some(divergence) = &device.first_divergence {
            self.named(
                "parted",
                &format!("at entry {}: {}", count(divergence.event as u64), divergence.why),
            );
        }
        self.start(device);
        let end = match device.end_differences {
            Some(0) => "the snapshot's segments and blocks, all of them".to_owned(),
            Some(n) if device.exact == Some(true) => {
                format!("{} differ from the snapshot's", counted(n as u64, "segment"))
            }
            _ => "not compared: the replay stopped before it".to_owned(),
        };
        self.named("end", &end);
        self.assumed(device);
        if device.ambiguous_calls > 0 {
            let calls = counted(device.ambiguous_calls as u64, "call");
            let it = format!(
                "{calls} can have come about in several ways: counts of retries may be off by as many"
            );
            self.named("open", &it);
        }
        self.replay_figures(device, None);
        self.failed_in_replay(device);
    }

    fn what_if(&mut self, device: &ReplayedDevice, recorded: &ReplayedDevice) {
        let name = device.device;
        let was = recorded.ooms.len();
        let verdict = match (was, device.ooms.len()) {
            (0, 0) => "no request fails, as before".to_owned(),
            (_, 0) => format!("no request fails; {} did", count(was as u64)),
            (0, n) => format!("{}; none did", failing(n)),
            (_, n) => format!("{}; {} did", failing(n), count(was as u64)),
        };
        let title = format!("Device {name}: {verdict}");
        let title = if device.ooms.is_empty() { title } else { self.style.alarm(&title) };
        self.line(&self.style.heading(&title));
        if recorded.exact != Some(true) {
            let matched = recorded.events.matched.unwrap_or(0) as u64;
            let all = recorded.events.recorded as u64;
            let it = format!(
                "the recorded run itself was reproduced only up to entry {} of {}: its figures stop \
                 there, and what follows is less certain",
                count(matched),
                count(all)
            );
            self.named("caution", &it);
        }
        self.start(device);
        self.assumed(device);
        self.replay_figures(device, Some(recorded));
        self.failed_in_replay(device);
    }

    fn start(&mut self, device: &ReplayedDevice) {
        if device.start == "reconstructed" {
            self.named(
                "start",
                "not recorded; rebuilt by undoing the trace from the final segments, so totals and \
                 peaks count from there",
            );
        }
    }

    fn assumed(&mut self, device: &ReplayedDevice) {
        let assumed = &device.assumed;
        if let Some(capacity) = assumed.capacity_bytes {
            self.named("device", &format!("{} within reach", size(capacity)));
        }
        if let Some(limit) = assumed.limit_bytes {
            self.named("limit", &format!("the process may reserve {}", size(limit)));
        }
        for pool in &assumed.no_split_pools {
            let [a, b] = pool;
            self.named("pool", &format!("({a}, {b}) splits no blocks, as its use shows"));
        }
        for setting in &assumed.settings {
            self.named("found", &format!("{setting}, which this release does not record"));
        }
    }

    fn replay_figures(&mut self, device: &ReplayedDevice, recorded: Option<&ReplayedDevice>) {
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
        let header: &[&str] =
            if recorded.is_some() { &["", "recorded", "what-if"] } else { &["", "replayed"] };
        let rows = rows.collect();
        self.line("");
        self.table(header, &[0], rows);
    }

    fn failed_in_replay(&mut self, device: &ReplayedDevice) {
        if device.ooms.is_empty() {
            return;
        }
        self.line("");
        for oom in device.ooms.iter().take(SHOWN_OOMS) {
            let request = size(oom.requested_bytes);
            let entry = count(oom.event as u64);
            self.line(&format!("  a request of {request} fails at entry {entry}"));
        }
        let more = device.ooms.len().saturating_sub(SHOWN_OOMS);
        if more > 0 {
            self.line(&format!("  and {} more", count(more as u64)));
        }
    }
}

fn failing(requests: usize) -> String {
    if requests == 1 {
        "1 request fails".to_owned()
    } else {
        format!("{} requests fail", count(requests as u64))
    }
}

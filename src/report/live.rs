//! The page of `oomscope live`.

use super::sheet::Page;
use super::style::Style;
use super::table::table;
use super::words::rules;
use crate::units::{count, counted, duration, plain, size};
use crate::whatif::{CallTimes, Cost, Costs, EntryReport, LiveDevice, LiveDifference, LiveReport};

/// Failed requests that are listed.
const SHOWN_OOMS: usize = 5;

/// The page for a person.
pub fn live_page(report: &LiveReport, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(&style.heading(&plain(&report.path)));
    page.text(&rules(&report.torch_version, report.settings_string.as_deref()));
    page.warnings(&report.warnings);
    page.line("");
    page.gpu(report);
    for device in &report.devices {
        page.line("");
        page.live_device(device);
    }
    page.out
}

/// The page of what calls cost, for a person.
pub fn costs_page(costs: &Costs, style: Style) -> String {
    let title = format!("Device calls on {}", plain(&costs.measured_on()));
    let calls = &costs.calls;
    let kinds = [
        ("cudaMalloc", &calls.malloc),
        ("cudaFree", &calls.free),
        ("map", &calls.map),
        ("unmap", &calls.unmap),
    ];
    let row = |name: &str, cost: &Cost| {
        let median = match cost.median_ns {
            0..1_000_000 => format!("{:.1} us", cost.median_ns as f64 / 1e3),
            longer => duration(longer / 1_000),
        };
        vec![name.to_owned(), size(cost.bytes), count(cost.samples), median]
    };
    let rows = kinds.iter().flat_map(|(name, costs)| costs.iter().map(|cost| row(name, cost)));
    let header = ["call", "size", "calls", "median"];
    format!("{}\n{}", style.heading(&title), table(style, &header, &[0], rows.collect()))
}

impl Page {
    fn gpu(&mut self, report: &LiveReport) {
        let gpu = &report.gpu;
        let title =
            format!("GPU {}: {}, driver for CUDA {}", gpu.gpu, plain(&gpu.name), gpu.cuda_version);
        self.line(&self.style.heading(&title));
        let left = match gpu.kept_free_bytes {
            0 => "nothing is".to_owned(),
            kept => format!("{} are", size(kept)),
        };
        let memory = format!(
            "{}, of which {} were free; {left} left alone, so {} are within reach",
            size(gpu.total_bytes),
            size(gpu.free_bytes),
            size(gpu.within_reach_bytes)
        );
        self.named("memory", &memory);
        self.named("what-ifs", &format!("on this GPU: --capacity {}", gpu.within_reach_bytes));
        let pace = match report.pace {
            "recorded" => "calls made when they were recorded",
            _ => "calls made as fast as possible",
        };
        let touched = if report.touched { ", all memory written once" } else { "" };
        self.named("pace", &format!("{pace}{touched}"));
    }

    fn live_device(&mut self, device: &LiveDevice) {
        let verdict = match device.ooms.len() {
            0 => "it fits: every request was served".to_owned(),
            1 => "1 request failed".to_owned(),
            n => format!("{} requests failed", count(n as u64)),
        };
        let but = if device.as_predicted { "" } else { ", and not as predicted" };
        let title = format!("Device {} of the snapshot: {verdict}{but}", device.device);
        let went_well = device.ooms.is_empty() && device.as_predicted;
        let title = if went_well { title } else { self.style.alarm(&title) };
        self.line(&self.style.heading(&title));
        self.failed(device);
        match &device.first_difference {
            None => {
                self.named("prediction", "every decision as on a simulated device of this size");
            }
            Some(difference) => self.difference(difference),
        }
        if device.start == "reconstructed" {
            self.named(
                "start",
                "not recorded; rebuilt by undoing the trace from the final segments, and taken from the \
                 GPU first",
            );
        }
        let peak = format!(
            "{} reserved by the allocator's count, {} by the driver's",
            size(device.peak_reserved_bytes),
            size(device.driver_peak_bytes)
        );
        self.named("peak", &peak);
        self.named("allocated", &format!("{} at most", size(device.peak_allocated_bytes)));
        let runs = match device.runs {
            1 => "once".to_owned(),
            n => format!("{} times; the times are those of all", count(n.into())),
        };
        let entries = counted(device.events as u64, "entry");
        self.named("replayed", &format!("{entries}, {runs}"));
        self.calls(device);
    }

    fn failed(&mut self, device: &LiveDevice) {
        for oom in device.ooms.iter().take(SHOWN_OOMS) {
            let request = size(oom.requested_bytes);
            self.named("failed", &format!("{request} at entry {}", count(oom.event as u64)));
        }
        let more = device.ooms.len().saturating_sub(SHOWN_OOMS);
        if more > 0 {
            self.named("", &format!("and {} more", count(more as u64)));
        }
    }

    fn difference(&mut self, difference: &LiveDifference) {
        let did = |entry: &Option<EntryReport>| match entry {
            Some(entry) => format!("{} of {}", entry.action, size(entry.size)),
            None => "nothing".to_owned(),
        };
        let at = count(difference.event as u64);
        let text = match (&difference.predicted, &difference.live) {
            (None, None) => format!("all but one decision, at entry {at}"),
            (predicted, live) => format!(
                "holds up to entry {at}: {} was predicted there, the GPU made it {}",
                did(predicted),
                did(live)
            ),
        };
        self.named("prediction", &text);
        if let (Some(refused), Some(free)) =
            (difference.refused_bytes, difference.driver_free_bytes)
        {
            let text = format!(
                "by the driver: {}, with {} free by its own count and enough within reach by ours",
                size(refused),
                size(free)
            );
            self.named("refused", &text);
        }
    }

    fn calls(&mut self, device: &LiveDevice) {
        let calls = &device.calls;
        let time = |us| if us == 0 { "<1 us".to_owned() } else { duration(us) };
        let row = |(name, times): (&str, &CallTimes)| {
            vec![
                name.to_owned(),
                count(times.count),
                time(times.total_us),
                time(times.median_us),
                time(times.p99_us),
            ]
        };
        let kinds = [
            ("cudaMalloc", &calls.malloc),
            ("cudaFree", &calls.free),
            ("map", &calls.map),
            ("unmap", &calls.unmap),
        ];
        let rows: Vec<Vec<String>> =
            kinds.into_iter().filter(|(_, times)| times.count > 0).map(row).collect();
        if rows.is_empty() {
            self.named("device calls", "none");
            return;
        }
        self.line("");
        let header = ["device calls", "count", "total", "median", "p99"];
        self.table(&header, &[0], rows);
    }
}

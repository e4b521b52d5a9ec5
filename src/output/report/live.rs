//! The page of `oomscope live`.

use super::phrases::{add_failed_requests, add_warnings};
use crate::base::units::{count, counted, duration, size};
use crate::output::document::{Document, Table, Text, alarm, code};
use crate::whatif::{CallTimes, Cost, Costs, EntryReport, LiveDevice, LiveDifference, LiveReport};

/// Lays out `report`.
pub fn live(report: &LiveReport) -> Document {
    let mut document = Document::default();
    document.title(code(&*report.path));
    let settings = match report.settings_string.as_deref() {
        Some("") => "default settings".into(),
        Some(settings) => Text::from("settings ").and(code(settings)),
        None => "settings not recorded by this release".into(),
    };
    document.paragraph(Text::from(format!("Rules of PyTorch {}, ", report.torch_version)).and(settings));
    add_warnings(&mut document, &report.warnings);
    gpu(&mut document, report);
    for device in &report.devices {
        live_device(&mut document, device);
    }
    document
}

/// Lays out the measured costs of device calls.
pub fn costs(costs: &Costs) -> Document {
    let mut document = Document::default();
    document.title(format!("Device calls on {}", costs.measured_on()));
    let calls = &costs.calls;
    let kinds =
        [("cudaMalloc", &calls.malloc), ("cudaFree", &calls.free), ("map", &calls.map), ("unmap", &calls.unmap)];
    let row = |name: &str, cost: &Cost| {
        let median = match cost.median_ns {
            0..1_000_000 => format!("{:.1} us", cost.median_ns as f64 / 1e3),
            longer => duration(longer / 1_000),
        };
        vec![name.to_owned(), size(cost.bytes), count(cost.samples), median]
    };
    let rows = kinds.iter().flat_map(|(name, costs)| costs.iter().map(|cost| row(name, cost)));
    let header = ["call", "size", "calls", "median"];
    document.table(Table::new(&header, &[0], rows));
    document
}

fn gpu(document: &mut Document, report: &LiveReport) {
    let gpu = &report.gpu;
    let title = format!("GPU {}: {}, driver for CUDA {}", gpu.gpu, gpu.name, gpu.cuda_version);
    document.heading(title);
    let left = match gpu.kept_free_bytes {
        0 => "none".to_owned(),
        kept => size(kept),
    };
    let memory = format!(
        "{}, {} free; {left} left unused, so {} is within reach",
        size(gpu.total_bytes),
        size(gpu.free_bytes),
        size(gpu.within_reach_bytes)
    );
    document.field("memory", memory);
    document.field("what-ifs", format!("on this GPU: --capacity {}", gpu.within_reach_bytes));
    let pace = match report.pace {
        "recorded" => "calls made at the recorded times",
        _ => "calls made as fast as possible",
    };
    let touched = if report.touched { ", all memory written once" } else { "" };
    document.field("pace", format!("{pace}{touched}"));
}

fn live_device(document: &mut Document, device: &LiveDevice) {
    let verdict = match device.ooms.len() {
        0 => "it fits: every request was served".to_owned(),
        1 => "1 request failed".to_owned(),
        n => format!("{} requests failed", count(n as u64)),
    };
    let but = if device.as_predicted { "" } else { ", and not as predicted" };
    let title = format!("Device {} of the snapshot: {verdict}{but}", device.device);
    let went_well = device.ooms.is_empty() && device.as_predicted;
    let title = if went_well { title.into() } else { alarm(title) };
    document.heading(title);
    add_failed_requests(document, &device.ooms);
    match &device.first_difference {
        None => {
            document.field("prediction", "every decision matches a simulated device of this size");
        }
        Some(difference) => differs(document, difference),
    }
    if device.start == "reconstructed" {
        document.field(
            "start",
            "not recorded; reconstructed by undoing the trace from the final segments, and allocated \
                 on the GPU first",
        );
    }
    let peak = format!(
        "{} reserved by the allocator's count, {} by the driver's",
        size(device.peak_reserved_bytes),
        size(device.driver_peak_bytes)
    );
    document.field("peak", peak);
    document.field("allocated", format!("{} at most", size(device.peak_allocated_bytes)));
    let runs = match device.runs {
        1 => "once".to_owned(),
        n => format!("{} times; the times are those of all", count(n.into())),
    };
    let entries = counted(device.events as u64, "entry");
    document.field("replayed", format!("{entries}, {runs}"));
    calls(document, device);
}

fn differs(document: &mut Document, difference: &LiveDifference) {
    let did = |entry: &Option<EntryReport>| match entry {
        Some(entry) => format!("{} of {}", entry.action, size(entry.size)),
        None => "nothing".to_owned(),
    };
    let at = count(difference.event as u64);
    let text = match (&difference.predicted, &difference.live) {
        (None, None) => format!("every decision but one, at entry {at}"),
        (predicted, live) => {
            format!("matches up to entry {at}: predicted {}, on the GPU {}", did(predicted), did(live))
        }
    };
    document.field("prediction", text);
    if let (Some(refused), Some(free)) = (difference.refused_bytes, difference.driver_free_bytes) {
        let text = format!(
            "{} by the driver, with {} free by its count and enough within reach by oomscope's",
            size(refused),
            size(free)
        );
        document.field("refused", text);
    }
}

fn calls(document: &mut Document, device: &LiveDevice) {
    let calls = &device.calls;
    let time = |us| if us == 0 { "<1 us".to_owned() } else { duration(us) };
    let row = |(name, times): (&str, &CallTimes)| {
        vec![name.to_owned(), count(times.count), time(times.total_us), time(times.median_us), time(times.p99_us)]
    };
    let kinds =
        [("cudaMalloc", &calls.malloc), ("cudaFree", &calls.free), ("map", &calls.map), ("unmap", &calls.unmap)];
    let rows: Vec<Vec<String>> = kinds.into_iter().filter(|(_, times)| times.count > 0).map(row).collect();
    if rows.is_empty() {
        document.field("device calls", "none");
        return;
    }
    let header = ["device calls", "count", "total", "median", "p99"];
    document.table(Table::new(&header, &[0], rows));
}

//! The page of `oomscope live`.

use super::notes::{add_notes, with_other_notes};
use super::phrases::add_failed_requests;
use crate::base::units::{count, counted, duration, size};
use crate::output::document::{Document, Table, Text, alarm, amount, code, faint, strong};
use crate::output::wording::command_line;
use crate::whatif::{LiveDevice, LiveReport};

/// Lays out `report`: how each device fared, its peaks and its calls of the driver.
pub fn live(report: &LiveReport) -> Document {
    let mut document = Document::default();
    let gpu = format!("{}, CUDA {}", report.gpu.name, report.gpu.cuda_version);
    for (index, device) in report.devices.iter().enumerate() {
        document.headline(headline(report, device), faint(if index == 0 { gpu.as_str() } else { "" }));
        if index == 0 {
            add_notes(&mut document, &report.warnings);
        }
        live_device(&mut document, device);
    }
    document.fields("next", command_line("whatif", &report.path).map(code));
    let mut sections = Document::default();
    setup(&mut sections, report);
    document.with_sections(with_other_notes(sections, &report.warnings))
}

/// `fits on GPU 0: every request was served, as predicted`
fn headline(report: &LiveReport, device: &LiveDevice) -> Text {
    let of = if report.devices.len() > 1 { format!("GPU {} ", device.device) } else { String::new() };
    let predicted = if device.as_predicted { ", as predicted" } else { ", not as predicted" };
    let gpu = report.gpu.gpu;
    match device.ooms.len() as u64 {
        0 => strong(format!("{of}fits on GPU {gpu}")).and(format!(": every request was served{predicted}")),
        failed => alarm(format!("{of}does not fit on GPU {gpu}"))
            .and(format!(": {} failed{predicted}", counted(failed, "request"))),
    }
}

/// How the recording was replayed.
fn setup(document: &mut Document, report: &LiveReport) {
    let gpu = &report.gpu;
    let left = if gpu.kept_free_bytes == 0 { "none".to_owned() } else { size(gpu.kept_free_bytes) };
    let [total, free, reach] = [gpu.total_bytes, gpu.free_bytes, gpu.within_reach_bytes].map(size);
    document.field("memory", format!("{total}, {free} free; {left} left unused, so {reach} is within reach"));
    document.field("what-ifs", format!("on this GPU: --capacity {}", gpu.within_reach_bytes));
    let settings = report.settings_string.as_deref().unwrap_or("not recorded by this release");
    let settings = if settings.is_empty() { "default" } else { settings };
    document.field("rules", format!("of PyTorch {}, settings {settings}", report.torch_version));
}

fn live_device(document: &mut Document, device: &LiveDevice) {
    let peaks = [
        ("allocated", device.figures.peak_allocated_bytes),
        ("reserved, by the allocator's count", device.figures.peak_reserved_bytes),
        ("reserved, by the driver's", device.driver_peak_bytes),
    ];
    document
        .table(Table::from_rows(peaks).text("peak", |(name, _)| *name).number("", |(_, bytes)| amount(*bytes)).wide());
    calls(document, device);
    add_failed_requests(document, &device.ooms);
    first_difference(document, device);
}

fn first_difference(document: &mut Document, device: &LiveDevice) {
    let Some(difference) = &device.first_difference else { return }; // all entries match
    let at = count(difference.event as u64);
    let [predicted, live] = [&difference.predicted, &difference.live]
        .map(|entry| entry.as_ref().map(|entry| format!("{} of {}", entry.action, size(entry.size))));
    let text = match (predicted.as_deref(), live.as_deref()) {
        (None, None) => format!("every decision but one, at entry {at}"),
        (predicted, live) => {
            let [predicted, live] = [predicted, live].map(|entry| entry.unwrap_or("nothing"));
            format!("matches up to entry {at}: predicted {predicted}, on the GPU {live}")
        }
    };
    document.field("why", text);
    let refused = difference.refused_bytes.zip(difference.driver_free_bytes).map(|(refused, free)| {
        let [refused, free] = [refused, free].map(size);
        format!("{refused} by the driver, with {free} free by its count and enough within reach by oomscope's")
    });
    document.fields("refused", refused);
}

fn calls(document: &mut Document, device: &LiveDevice) {
    let calls = &device.calls;
    let kinds =
        [("cudaMalloc", &calls.malloc), ("cudaFree", &calls.free), ("map", &calls.map), ("unmap", &calls.unmap)];
    let table = Table::from_rows(kinds.into_iter().filter(|(_, times)| times.count > 0))
        .text("device calls", |(name, _)| *name)
        .number("count", |(_, times)| count(times.count))
        .number("total", |(_, times)| call_time(times.total_us))
        .number("median", |(_, times)| call_time(times.median_us))
        .number("p99", |(_, times)| call_time(times.p99_us));
    document.table(table.wide());
}

fn call_time(us: u64) -> String {
    if us == 0 { "<1 us".to_owned() } else { duration(us) }
}

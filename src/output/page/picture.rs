//! The course of memory as a picture that needs no script: what mail programs, code reviews and print show.

use std::fmt::Write as _;

use super::course;
use crate::analysis::DeviceReport;
use crate::base::units::{count, ratio, size};
use crate::output::document::html_literal;
use crate::study::{SERIES_ALLOCATED, SERIES_RESERVED};

/// Size of the picture, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 240.0;
/// Points of each line: more of them would not be seen.
const POINTS: usize = 400;
/// A device this many times as large as its use is not drawn to scale.
const MAX_CAPACITY_RATIO: f64 = 1.5;

/// Allocated and reserved memory of `device` over its trace, with the last failed request and the size of the device;
/// `None` without a trace.
pub(super) fn picture(device: &DeviceReport) -> Option<String> {
    let history = device.timeline.as_ref()?;
    let series = [SERIES_ALLOCATED, SERIES_RESERVED].map(|series| course(history, series, POINTS));
    let failed = device.ooms.last();
    let wanted = failed.map_or(0, |oom| oom.allocated_bytes.saturating_add(oom.requested_bytes));
    let used = series.iter().flatten().copied().fold(wanted.max(1), u64::max);
    let reach = failed.map(|oom| oom.reserved_bytes.saturating_add(oom.device_free_bytes));
    let capacity = device.capacity_bytes.or(reach).filter(|bytes| ratio(*bytes, used) <= MAX_CAPACITY_RATIO);
    let top = used.max(capacity.unwrap_or(0));
    let [filled, line] = series.each_ref().map(|values| {
        let mut points = String::new();
        let wide = WIDTH / ratio(values.len().max(1) as u64, 1);
        for (index, bytes) in values.iter().enumerate() {
            let x = wide * ratio(index as u64, 1);
            let _ = write!(points, "{x:.1},{0:.1} {1:.1},{0:.1} ", height(*bytes, top), x + wide);
        }
        points
    });
    let [allocated, reserved] = &series;
    let mut shapes = format!(
        "<polygon fill=\"#46897f\" points=\"0,{HEIGHT} {filled}{WIDTH},{HEIGHT}\"/>\
         <polyline fill=\"none\" stroke=\"#888\" points=\"{line}\"/>"
    );
    if let Some(bytes) = capacity {
        let at = height(bytes, top);
        let _ = write!(shapes, "<path stroke=\"currentColor\" stroke-dasharray=\"6 4\" d=\"M0 {at:.1}H{WIDTH}\"/>");
        let what = if device.capacity_bytes.is_some() { "on the device" } else { "within reach" };
        shapes += &label(4.0, at - 5.0, "start", "currentColor", &format!("{} {what}", size(bytes)));
    }
    if let Some(oom) = failed {
        let at = ratio(oom.event.saturating_sub(history.first_entry), history.entries.max(1)).min(1.0) * (WIDTH - 6.0);
        let (low, high) = (height(oom.allocated_bytes, top), height(wanted, top));
        let tall = low - high;
        let _ =
            write!(shapes, "<rect fill=\"#c8322a\" x=\"{at:.1}\" y=\"{high:.1}\" width=\"6\" height=\"{tall:.1}\"/>");
        let (x, anchor) = if at > WIDTH / 2.0 { (at - 6.0, "end") } else { (at + 12.0, "start") };
        shapes +=
            &label(x, high + 14.0, anchor, "#c8322a", &format!("failed: {} requested", size(oom.requested_bytes)));
    }
    let caption = format!(
        "Memory over {} entries: allocated (filled, at most {}) and reserved (line, at most {})",
        count(history.entries),
        size(allocated.iter().copied().fold(0, u64::max)),
        size(reserved.iter().copied().fold(0, u64::max))
    );
    Some(format!(
        "<figure class=\"course\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" \
         aria-label=\"{0}\">{shapes}</svg><figcaption>{0}</figcaption></figure>\n",
        html_literal(&caption)
    ))
}

/// The vertical position of `bytes`, in a picture that ends above `top` bytes.
fn height(bytes: u64, top: u64) -> f64 {
    HEIGHT - ratio(bytes, top) * (HEIGHT - 24.0)
}

fn label(x: f64, y: f64, anchor: &str, fill: &str, text: &str) -> String {
    let text = html_literal(text);
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{fill}\" font-size=\"14\">{text}</text>")
}

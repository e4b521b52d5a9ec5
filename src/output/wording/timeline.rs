//! The summary of a timeline.

use super::Summary;
use super::summary::command_line;
use crate::base::units::{count, counted, duration, size};
use crate::base::warning::Code;
use crate::study::figures::Figure;
use crate::study::timeline::{DeviceTimeline, TimelineReport};

impl TimelineReport {
    /// Summarizes the device with most failed requests; on a tie, the one with most reserved bytes.
    pub fn summary(&self) -> Summary {
        let worst = self.devices.iter().rev().max_by_key(|device| (device.marks.oom.count, peak_reserved(device)));
        let is_lost = self.warnings.iter().any(|warning| warning.code == Code::HistoryLost);
        worst.map_or_else(
            || Summary::from_answer("nothing was recorded"),
            |device| summarize_device(device, is_lost, &self.path),
        )
    }
}

fn peak_of(device: &DeviceTimeline, figure: Figure) -> Option<(u64, Option<u64>)> {
    device.series.size(figure).map(|series| (series.highest, series.highest_event))
}

fn peak_reserved(device: &DeviceTimeline) -> u64 {
    peak_of(device, Figure::Reserved).map_or(0, |(bytes, _)| bytes)
}

fn summarize_device(device: &DeviceTimeline, is_lost: bool, path: &str) -> Summary {
    let id = device.device;
    let is_whole = device.events == device.trace_events && !is_lost;
    let part = if is_whole { "this recording" } else { "this part of the recording" };
    let length = device.duration_us.filter(|us| *us > 0);
    let length = length.map_or_else(String::new, |us| format!(" of {}", duration(us)));
    let failed = &device.marks.oom;
    let failures = match failed.largest.last().filter(|_| failed.count > 0) {
        None => format!("no request failed in {part}{length}"),
        Some(last) => format!(
            "{} failed in {part}{length}, the last at entry {}",
            counted(failed.count, "request"),
            count(last.event)
        ),
    };
    let peak = |(bytes, event): (u64, Option<u64>)| {
        let at = event.map(|event| format!(" at entry {}", count(event)));
        format!("{}{}", size(bytes), at.unwrap_or_else(|| " before its first entry".to_owned()))
    };
    let (allocated, reserved) = (peak_of(device, Figure::Allocated), peak_of(device, Figure::Reserved));
    let at_least = if is_lost { "at least " } else { "" };
    let answer = match (allocated, reserved) {
        (Some(allocated), Some(reserved)) => format!(
            "{failures}; allocated memory of device {id} peaks at {at_least}{}, reserved memory at {at_least}{}",
            peak(allocated),
            peak(reserved)
        ),
        _ => failures, // never: both figures have a series
    };
    let (action, position) = if failed.count > 0 {
        ("see who held the memory at the last failure", "failure")
    } else {
        ("see who held the memory at its peak", "peak")
    };
    let copy = command_line(&format!("analyze --at {position}"), path);
    Summary { answer, who: None, variable: None, action: copy.is_some().then(|| action.to_owned()), copy }
}

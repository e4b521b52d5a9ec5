//! What a timeline comes to, in the lines that its page begins with.

use super::answer::DeviceTimeline;
use crate::base::summary::{Summary, command_line};
use crate::base::units::{count, counted, duration, size};
use crate::base::warning::{Code, Warning};
use crate::study::figures::Figure;

/// Of the device that stands worst: the one on which most requests failed, of equals the one that reserves most.
pub(super) fn of_devices(devices: &[DeviceTimeline], warnings: &[Warning], path: &str) -> Summary {
    let worst = devices.iter().rev().max_by_key(|one| (one.marks.oom.count, reserved(one)));
    let is_lost = warnings.iter().any(|warning| warning.code == Code::HistoryLost);
    worst.map_or_else(|| Summary::from_answer("nothing was recorded"), |one| of(one, is_lost, path))
}

fn highest(device: &DeviceTimeline, figure: Figure) -> Option<(u64, Option<u64>)> {
    device.series.size(figure).map(|series| (series.highest, series.highest_event))
}

fn reserved(device: &DeviceTimeline) -> u64 {
    highest(device, Figure::Reserved).map_or(0, |(bytes, _)| bytes)
}

fn of(device: &DeviceTimeline, is_lost: bool, path: &str) -> Summary {
    let id = device.device;
    let is_whole = device.events == device.trace_events && !is_lost;
    let part = if is_whole { "this recording" } else { "this part of the recording" };
    let lasted = device.duration_us.filter(|us| *us > 0);
    let lasted = lasted.map_or_else(String::new, |us| format!(" of {}", duration(us)));
    let failed = &device.marks.oom;
    let fell = match failed.largest.last().filter(|_| failed.count > 0) {
        None => format!("no request failed in {part}{lasted}"),
        Some(last) => format!(
            "{} failed in {part}{lasted}, the last at entry {}",
            counted(failed.count, "request"),
            count(last.event)
        ),
    };
    let peak = |(bytes, event): (u64, Option<u64>)| {
        let at = event.map(|event| format!(" at entry {}", count(event)));
        format!("{}{}", size(bytes), at.unwrap_or_else(|| " before its first entry".to_owned()))
    };
    let (allocated, held) = (highest(device, Figure::Allocated), highest(device, Figure::Reserved));
    let least = if is_lost { "at least " } else { "" };
    let answer = match (allocated, held) {
        (Some(allocated), Some(held)) => format!(
            "{fell}; allocated memory of device {id} peaks at {least}{}, reserved memory at {least}{}",
            peak(allocated),
            peak(held)
        ),
        _ => fell,
    };
    let (what, moment) = if failed.count > 0 {
        ("see who held the memory at the last failure", "failure")
    } else {
        ("see who held the memory at its peak", "peak")
    };
    let copy = command_line(&format!("analyze --at {moment}"), path);
    Summary { answer, who: None, action: copy.is_some().then(|| what.to_owned()), copy }
}

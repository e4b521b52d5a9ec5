//! The summary of a timeline.

use super::Summary;
use super::summary::command_line;
use crate::analysis::timeline::{DeviceTimeline, TimelineReport};
use crate::base::units::{count, counted, size};
use crate::base::warning::Code;
use crate::study::figures::Figure;

impl TimelineReport {
    /// Summarizes the device with most failed requests; on a tie, the one with most reserved bytes.
    pub fn summary(&self) -> Summary {
        let Some(device) = self.worst() else { return Summary::from_answer("nothing was recorded") };
        let is_lost = self.warnings.iter().any(|warning| warning.code == Code::HistoryLost);
        let is_whole = device.events == device.trace_events && !is_lost;
        let part = if is_whole { "" } else { " in this part of the recording" };
        let id = device.device;
        let failed = &device.marks.oom;
        let (answer, action, position) = match failed.largest.last().filter(|_| failed.count > 0) {
            None => {
                let peak = device.series.size(Figure::Reserved).map_or(0, |series| series.highest);
                let at_least = if is_lost { "at least " } else { "" };
                let answer = format!("no request failed{part}: up to {at_least}{} reserved on GPU {id}", size(peak));
                (answer, "see who held the memory at its peak", "peak")
            }
            Some(last) => {
                let (requests, at) = (counted(failed.count, "request"), count(last.event));
                let last = if failed.count == 1 { "" } else { "the last " };
                let answer = format!("{requests} failed{part} on GPU {id}, {last}at entry {at}");
                (answer, "see who held the memory at the last failure", "failure")
            }
        };
        let copy = command_line(&format!("analyze --at {position}"), &self.path);
        let action = copy.is_some().then(|| action.to_owned());
        Summary { action, copy, ..Summary::from_answer(answer) }
    }

    /// The device with most failed requests; on a tie, the one with most reserved bytes.
    pub(crate) fn worst(&self) -> Option<&DeviceTimeline> {
        let reserved =
            |device: &DeviceTimeline| device.series.size(Figure::Reserved).map_or(0, |series| series.highest);
        // `max_by_key` takes the last of equals; the first one is wanted.
        self.devices.iter().rev().max_by_key(|device| (device.marks.oom.count, reserved(device)))
    }
}

//! The summary of a comparison.

use super::Summary;
use super::summary::command_line;
use crate::base::units::{signed_size, size};
use crate::compare::diff::{DeviceDiff, DiffReport};
use crate::stacks::frames::FrameReport;
use crate::study::figures::Figure;

impl DeviceDiff {
    /// `figure` before and after. A recording that lacks the device has nothing on it.
    pub(crate) fn numbers(&self, figure: Figure) -> [u64; 2] {
        [self.before, self.after].map(|side| side.unwrap_or_default().number(figure))
    }
}

impl DiffReport {
    /// Summarizes the device that grew most, or the one that changed most if none grew.
    pub fn summary(&self) -> Summary {
        let Some(most) = self.most_changed() else {
            return Summary::from_answer("neither snapshot holds memory or a trace");
        };
        let answer = match &*self.devices {
            [only] => only.summary.clone(),
            _ => format!("GPU {}: {}", most.device, most.summary),
        };
        let most_held = most.lines.iter().max_by_key(|line| line.held.after_bytes);
        let who = most_held.filter(|line| line.held.after_bytes > 0).map(|line| {
            let place = line.location.label();
            let (held, by) = (size(line.held.after_bytes), signed_size(line.held.delta_bytes));
            format!("{place}: {held} after ({by})")
        });
        let [ooms_before, ooms_after] = most.numbers(Figure::Ooms);
        let grown = most.lines.iter().find(|line| line.held.delta_bytes > 0);
        let grown = grown.filter(|_| most.delta.change(Figure::Allocated) > 0);
        let place = grown.and_then(|line| line.location.frame.as_ref()).map(FrameReport::file_line);
        let (action, copy) = match place {
            _ if ooms_after > ooms_before => {
                (Some("see why requests fail now".to_owned()), command_line("analyze", &self.after))
            }
            Some(place) => (Some("look at what changed at that line".to_owned()), Some(place)),
            None => (None, None),
        };
        Summary { answer, who, variable: None, action, copy }
    }

    /// The device that grew most, or the one that changed most if none grew.
    pub(crate) fn most_changed(&self) -> Option<&DeviceDiff> {
        self.devices.iter().max_by_key(|device| {
            let by = device.delta.change(Figure::Allocated);
            (by.max(0), by.unsigned_abs(), std::cmp::Reverse(device.device))
        })
    }
}

//! The source lines whose text a report quotes.

use std::collections::{BTreeMap, BTreeSet};

use super::device::DeviceReport;
use super::failure::SourceExcerpt;
use crate::snapshot::SourceLines;
use crate::stacks::frames::{CodeLocation, FrameReport, Origin};

/// Quotes the line of the last failed request of each device.
pub(super) fn quote_source(devices: &mut [DeviceReport], source: &SourceLines) {
    for oom in devices.iter_mut().filter_map(|device| device.ooms.last_mut()) {
        let frame = oom.location.frame.as_ref();
        oom.request.source = frame.and_then(|frame| SourceExcerpt::quote(frame, source));
    }
}

/// The lines that a page may quote, by file: of the last failed requests with their callers and neighbours, of growth,
/// of changes and of holders.
pub(super) fn named_lines(devices: &[DeviceReport]) -> BTreeMap<String, BTreeSet<u32>> {
    let mut lines = NamedLines::default();
    for device in devices {
        if let Some(oom) = device.ooms.last() {
            if let Some(frame) = &oom.location.frame {
                lines.add(frame, frame.line.saturating_sub(1)..=frame.line.saturating_add(1));
            }
            lines.add_location(&oom.location);
            oom.frames.iter().for_each(|frame| lines.add_frame(frame));
        }
        device.leaks.suspects.iter().for_each(|suspect| lines.add_location(&suspect.location));
        device.top_lines.iter().for_each(|line| lines.add_location(&line.location));
        for change in &device.changes {
            lines.add_location(&change.location);
            change.other_locations.iter().for_each(|location| lines.add_location(location));
        }
    }
    lines.by_file
}

#[derive(Default)]
struct NamedLines {
    by_file: BTreeMap<String, BTreeSet<u32>>,
}

impl NamedLines {
    fn add_location(&mut self, location: &CodeLocation) {
        let frames = [&location.frame, &location.called_from, &location.forward];
        frames.into_iter().flatten().for_each(|frame| self.add_frame(frame));
    }

    fn add_frame(&mut self, frame: &FrameReport) {
        self.add(frame, frame.line..=frame.line);
    }

    /// Pages quote only the program and what it has installed, not PyTorch.
    fn add(&mut self, frame: &FrameReport, lines: impl Iterator<Item = u32>) {
        if matches!(frame.origin(), Origin::User | Origin::Package) {
            self.by_file.entry(frame.file.clone()).or_default().extend(lines.filter(|line| *line > 0));
        }
    }
}

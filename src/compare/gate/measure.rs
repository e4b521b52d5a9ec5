//! Measures a device for a baseline: its peaks, and the lines that hold the memory at the peak.

use std::collections::BTreeMap;

use super::entries::{DeviceTotals, MeasuredDevice, MeasuredLine};
use crate::snapshot::Action;
use crate::stacks::frames::FrameReport;
use crate::study::DeviceStudy;
use crate::study::attribution::{Leaks, categorized_blocks};

/// Lines with a smaller share of the peak are left out.
const MIN_LINE_SHARE: u64 = 100;
/// Maximum number of lines in a baseline.
const MAX_LINES: usize = 20;

/// The bytes from which on a line is in a baseline whose peak is `peak_bytes`.
pub(super) fn min_line_bytes(peak_bytes: u64) -> u64 {
    peak_bytes / MIN_LINE_SHARE
}

/// The figures of `device` with all of its lines; `None` without a trace. `source` finds the file of a line in the
/// repository.
pub(super) fn measure(
    device: DeviceStudy<'_, '_>,
    process: &str,
    source: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Option<MeasuredDevice> {
    let peaks = device.figures_from_empty()?;
    let peak = device.peak();
    Some(MeasuredDevice {
        process: process.to_owned(),
        device: device.id(),
        totals: DeviceTotals {
            peak_allocated_bytes: peaks.peak_allocated_bytes,
            peak_reserved_bytes: peaks.peak_reserved_bytes,
            requests: device.device().indexes_with_action(Action::Alloc).count() as u64,
            growth_per_step_bytes: Leaks::bytes_per_step(device),
        },
        at_peak_bytes: peak.allocated_bytes,
        lines: lines_at(device, peak.allocated_event, source),
    })
}

/// The lines of the blocks that are live after `entry`.
fn lines_at(
    device: DeviceStudy<'_, '_>,
    entry: Option<u64>,
    source: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Vec<MeasuredLine> {
    let Some(entry) = entry.and_then(|entry| usize::try_from(entry).ok()) else { return Vec::new() };
    let stacks = device.stacks();
    let variables = device.variables();
    let mut sums = BTreeMap::new();
    for (block, (category, _)) in categorized_blocks(device, entry) {
        let variable = if block.is_kept() { variables.and_then(|known| known.of_block(block.address)) } else { None };
        let key = (stacks.line_id(block.extended_stack), category, variable);
        let sum: &mut u64 = sums.entry(key).or_default();
        *sum = sum.saturating_add(block.bytes);
    }
    let mut lines: BTreeMap<MeasuredLine, u64> = BTreeMap::new();
    for ((line, category, variable), bytes) in sums {
        let location = stacks.code_location(line);
        let unknown = FrameReport::new(location.label(), 0, String::new());
        let frame = location.frame.unwrap_or(unknown);
        let variable = variable.zip(variables).and_then(|(index, known)| known.row(index, stacks).owner().0);
        let row = MeasuredLine {
            file: source(&frame.file).unwrap_or_else(|| installed_path(&frame.file).to_owned()),
            line: frame.line,
            function: frame.name,
            category: category.word().to_owned(),
            variable,
            bytes: 0,
        };
        let sum = lines.entry(row).or_default();
        *sum = sum.saturating_add(bytes);
    }
    lines.into_iter().map(|(line, bytes)| MeasuredLine { bytes, ..line }).collect()
}

/// The path in the installation's packages, or else the file name: other machines have other directories.
fn installed_path(file: &str) -> &str {
    let package = ["/site-packages/", "/dist-packages/"].iter().find_map(|part| Some(file.split_once(part)?.1));
    package.unwrap_or_else(|| file.rsplit(['/', '\\']).next().unwrap_or(file))
}

impl MeasuredDevice {
    /// The device with only the lines that a baseline keeps.
    #[must_use]
    pub(super) fn with_main_lines(mut self) -> Self {
        let minimum = min_line_bytes(self.at_peak_bytes);
        self.lines.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.cmp(b)));
        self.lines.truncate(MAX_LINES);
        self.lines.retain(|line| line.bytes >= minimum);
        self.lines.sort();
        self
    }
}

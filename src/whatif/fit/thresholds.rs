//! Source lines whose kernels request more memory from a size on that was not recorded.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::reductions::Reduction;
use super::size::Size;
use crate::allocator::device::GpuModel;
use crate::stacks::frames::{CodeLocation, LineId};

/// A line that may be a reduction with a single stage at all recorded sizes, and two at a larger one. Each of its thread
/// blocks then writes a partial result into a buffer that lives as long as the call. The predicted peaks do not contain
/// it, and the predicted size counts as `checked` only if it would fit with the buffer too.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThresholdLine {
    /// The smallest size with the buffer.
    #[serde(rename = "from")]
    pub start: u64,
    /// Bytes of the buffer at the size `growth_at`.
    pub bytes: u64,
    /// The line.
    #[serde(flatten)]
    pub location: CodeLocation,
}

/// A line that sorts or scans data that grows. Its storage at another size is a guess.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SortLine {
    /// Bytes of the storage at the largest recorded size.
    pub bytes: u64,
    /// The line.
    #[serde(flatten)]
    pub location: CodeLocation,
}

/// The lines that sort or scan growing data, those with most storage first.
pub(super) fn sort_lines(fitted: &FittedProgram<'_, '_, '_>, top: usize) -> Vec<SortLine> {
    let mut lines: FxHashMap<LineId, (u64, usize)> = FxHashMap::default();
    for index in fitted.growing_sorts() {
        let request = &fitted.base.requests[index];
        let line = fitted.base.device.stacks().line_id(request.stack);
        let found = lines.entry(line).or_insert((0, index));
        found.0 = found.0.max(request.bytes);
    }
    let lines = lines.into_iter().map(|(line, (bytes, index))| SortLine {
        bytes,
        location: fitted.base.code_location(line, fitted.base.requests.get(index)),
    });
    let mut lines: Vec<SortLine> = lines.collect();
    lines.sort_by_cached_key(|line| (std::cmp::Reverse(line.bytes), line.location.label()));
    lines.truncate(top);
    lines
}

/// The lines with a threshold between two sizes, the largest recorded one and another, those with most bytes first.
pub(super) fn threshold_lines(
    fitted: &FittedProgram<'_, '_, '_>,
    sizes: [Size; 2],
    gpu: Option<&GpuModel>,
    top: usize,
) -> Vec<ThresholdLine> {
    let stacks = fitted.base.device.stacks();
    let mut lines: FxHashMap<LineId, (u64, u64, usize)> = FxHashMap::default();
    for reduction in &fitted.reductions.possible {
        let Some((start, bytes)) = find_threshold(fitted, reduction, sizes, gpu) else { continue };
        let line = stacks.line_id(fitted.base.requests[reduction.output].stack);
        let found = lines.entry(line).or_insert((start, 0, reduction.output));
        found.0 = found.0.min(start);
        found.1 = found.1.max(bytes);
    }
    let lines = lines.into_iter().map(|(line, (start, bytes, output))| ThresholdLine {
        start,
        bytes,
        location: fitted.base.code_location(line, fitted.base.requests.get(output)),
    });
    let mut lines: Vec<ThresholdLine> = lines.collect();
    lines.sort_by_cached_key(|line| (std::cmp::Reverse(line.bytes), line.start, line.location.label()));
    lines.truncate(top);
    lines
}

/// The first number from which on `reduction` takes two stages, and its bytes at `size`; `None` unless it begins
/// between both sizes.
fn find_threshold(
    fitted: &FittedProgram<'_, '_, '_>,
    reduction: &Reduction,
    [largest_recorded, size]: [Size; 2],
    gpu: Option<&GpuModel>,
) -> Option<(u64, u64)> {
    let scratch_at = |first: u64| fitted.scratch_at(reduction, Size { first, ..size }, gpu);
    let bytes = scratch_at(size.first)?.partial_bytes;
    let (mut below, mut above) = (largest_recorded.first, size.first);
    if below >= above || scratch_at(below).is_some() {
        return None;
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        *if scratch_at(middle).is_some() { &mut above } else { &mut below } = middle;
    }
    Some((above, bytes))
}

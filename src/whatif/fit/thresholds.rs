//! Source lines whose kernels request more memory from a size on that was not recorded.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::reductions::Reduction;
use super::size::Size;
use crate::stacks::frames::{CodeLocation, LineId};

/// A line with a reduction that takes a single stage at all recorded sizes, and two at a larger one. Each of its thread
/// blocks then writes a partial result into a buffer that lives as long as the call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThresholdLine {
    /// The smallest size with the buffer.
    #[serde(rename = "from")]
    pub start: u64,
    /// Bytes of the buffer at the size `growth_at`.
    pub bytes: u64,
    /// Whether the predicted peaks contain the buffer. Otherwise the line may be no reduction: the predicted size then
    /// counts as `checked` only if it would fit with the buffer too.
    pub is_predicted: bool,
    /// The line.
    #[serde(flatten)]
    pub location: CodeLocation,
}

/// The lines with a threshold between the largest recorded size and `size`, those with most bytes first.
pub(super) fn threshold_lines(
    fitted: &FittedProgram<'_, '_, '_>,
    largest_recorded: Size,
    size: Size,
    top: usize,
) -> Vec<ThresholdLine> {
    let stacks = fitted.base.device.stacks();
    let mut lines: FxHashMap<(LineId, bool), (u64, u64, usize)> = FxHashMap::default();
    let (known, possible) = (&fitted.reductions.known, &fitted.reductions.possible);
    let all = known.iter().map(|known| (known, true)).chain(possible.iter().map(|possible| (possible, false)));
    for (reduction, is_predicted) in all {
        let Some((start, bytes)) = find_threshold(fitted, reduction, largest_recorded, size) else { continue };
        let line = stacks.line_id(fitted.base.requests[reduction.output].stack);
        let found = lines.entry((line, is_predicted)).or_insert((start, 0, reduction.output));
        found.0 = found.0.min(start);
        found.1 = found.1.max(bytes);
    }
    let lines = lines.into_iter().map(|((line, is_predicted), (start, bytes, output))| ThresholdLine {
        start,
        bytes,
        is_predicted,
        location: fitted.base.code_location(line, fitted.base.requests.get(output)),
    });
    let mut lines: Vec<ThresholdLine> = lines.collect();
    lines.sort_by_cached_key(|line| {
        (std::cmp::Reverse((line.bytes, line.is_predicted)), line.start, line.location.label())
    });
    lines.truncate(top);
    lines
}

/// The first number from which on `reduction` takes two stages, and its bytes at `size`; `None` unless it begins
/// between both sizes.
fn find_threshold(
    fitted: &FittedProgram<'_, '_, '_>,
    reduction: &Reduction,
    largest_recorded: Size,
    size: Size,
) -> Option<(u64, u64)> {
    let scratch_at = |first: u64| fitted.scratch_at(reduction, Size { first, ..size });
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

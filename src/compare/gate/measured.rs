//! One device under a check: its figures, a sentence for each, and the lines that contribute to them.

use super::changes::LineDelta;
use super::entries::MeasuredDevice;
use super::unknown::UnknownReason;
use crate::analysis::failure::OomReport;
use crate::base::ids::StackId;
use crate::base::units::{counted, size};
use crate::base::warning::Code;
use crate::replay::literal::Tracking;
use crate::snapshot::{Block, BlockState};
use crate::stacks::frames::{FrameReport, Origin, StackReader};
use crate::study::DeviceStudy;
use crate::study::attribution::Leaks;
use crate::study::figures::{Amount, Figure};
use crate::study::memory::{BlockSum, BlockSums, sum_by_key, top_rows};

/// Entries have an action that no known release writes.
const UNKNOWN_ACTION: &str =
    "trace entries have an unknown action, which may be one that matters here, such as a failed request";

/// Trace entries contradict each other.
const CONTRADICTORY: &str = "the trace contradicts itself: entries are missing or altered";

/// Memory was reserved before the first entry, and nothing shows that this entry is the first recorded one.
const STARTS_LATE: &str = "the recording starts late, and the file does not show whether earlier entries are lost: \
    record with `oomscope run`, which notes the size of the ring, or start before the first use of CUDA; \
    --allow-missing truncated takes the recording as whole";

/// Maximum number of source lines in a finding.
const MAX_LINES: usize = 3;

/// A device whose figures are computed as limits need them.
pub(super) struct GatedDevice<'s, 'a> {
    pub(super) device: DeviceStudy<'s, 'a>,
    /// Path of its snapshot.
    pub(super) path: &'s str,
    /// The device in the entry of the baseline.
    pub(super) before: Option<&'s MeasuredDevice>,
    /// Its failed requests, if a limit needs them.
    pub(super) failures: Vec<OomReport>,
    /// Take a recording that starts late as whole.
    pub(super) accepts_late_start: bool,
    /// The name of that entry.
    pub(super) entry: &'s str,
    /// The lines that hold more than in the entry.
    pub(super) grown: Vec<LineDelta>,
}

impl GatedDevice<'_, '_> {
    /// A figure of the whole recording; only a lower bound if part of the recording is lost.
    fn traced(&self, figure: impl FnOnce() -> u64) -> Result<u64, UnknownReason> {
        let figure = self.device.history().map(|_| figure());
        self.check_complete(figure)?;
        figure.ok_or(UnknownReason::NoHistory)
    }

    /// Fails if part of the recording is or may be lost, or contradicts itself; then `at_least` is a lower bound of the figure.
    pub(super) fn check_complete(&self, at_least: Option<u64>) -> Result<(), UnknownReason> {
        let Some(over_time) = self.device.history() else { return Err(UnknownReason::NoHistory) };
        let (code, why) = match self.device.lost_history() {
            Some(lost) => (Code::HistoryLost, lost.to_string()),
            None if self.device.snapshot().warnings.has(Code::UnknownAction) => {
                (Code::UnknownAction, UNKNOWN_ACTION.to_owned())
            }
            None if over_time.outcome.is_inconsistent() => (Code::TraceInconsistent, CONTRADICTORY.to_owned()),
            None if !self.accepts_late_start && !self.device.is_start_shown() => {
                (Code::Truncated, STARTS_LATE.to_owned())
            }
            None => return Ok(()),
        };
        Err(UnknownReason::Incomplete { code, why, at_least })
    }

    /// The value of a figure.
    pub(super) fn read(&self, figure: Figure) -> Result<Amount, UnknownReason> {
        Ok(match figure {
            Figure::PeakReserved => Amount::Bytes(self.traced(|| self.device.peak().reserved_bytes)?.into()),
            Figure::PeakAllocated => Amount::Bytes(self.traced(|| self.device.peak().allocated_bytes)?.into()),
            Figure::Ooms => Amount::Count(self.traced(|| self.device.failed_requests().count() as u64)?.into()),
            Figure::StepGrowth => {
                self.check_complete(None)?;
                Amount::Bytes(Leaks::bytes_per_step(self.device).into())
            }
            Figure::GrowthPeakAllocated | Figure::GrowthPeakReserved => {
                Amount::Bytes(growth(self.replayed_peaks(figure)?))
            }
            Figure::GrowthRatioPeakAllocated | Figure::GrowthRatioPeakReserved => {
                Amount::Ratio(growth_ratio(self.replayed_peaks(figure)?)?)
            }
            _ => return figure.at(&self.device.memory().state).ok_or(UnknownReason::NoHistory),
        })
    }

    /// The peaks that a figure of growth compares, replayed from an empty pool: in the baseline and now.
    fn replayed_peaks(&self, figure: Figure) -> Result<[u64; 2], UnknownReason> {
        let now = self.device.figures_from_empty().ok_or(UnknownReason::NoHistory)?;
        let device = self.device.id();
        let baseline = self.before.ok_or_else(|| UnknownReason::NoEntry { device, entry: self.entry.to_owned() })?;
        self.check_complete(None)?;
        let before = baseline.totals;
        Ok(if is_about_allocated(figure) {
            [before.peak_allocated_bytes, now.peak_allocated_bytes]
        } else {
            [before.peak_reserved_bytes, now.peak_reserved_bytes]
        })
    }

    /// Describes a figure, whose formatted value is `value`.
    pub(super) fn sentence(&self, figure: Figure, value: &str) -> String {
        let memory = self.device.memory();
        let free = &memory.fragmentation;
        let reserved = size(memory.reserved_bytes);
        match figure {
            Figure::GapRatio => format!(
                "{value} of the {reserved} reserved is not held by the program (empty_cache() would release \
                 {} of it)",
                size(free.releasable_bytes)
            ),
            Figure::InactiveSplitRatio => {
                format!("{value} of the {reserved} reserved is free in partly used segments")
            }
            Figure::Fragmentation => format!(
                "{value} of the {reserved} reserved is free beside live blocks, so empty_cache() \
                 cannot release it"
            ),
            Figure::PeakReserved => format!("reserved memory peaks at {value}"),
            Figure::PeakAllocated => format!("allocated memory peaks at {value}"),
            Figure::Ooms => self.failed(),
            Figure::StepGrowth => format!("memory grows by {value} a step"),
            _ if figure.needs_baseline() => self.growth(figure, value),
            _ => format!("{}: {value}", figure.meaning()),
        }
    }

    fn failed(&self) -> String {
        let failed = counted(self.device.failed_requests().count() as u64, "request");
        let last = self.failures.last().map_or_else(String::new, |oom| {
            format!("; the last requested {}, verdict {}", size(oom.requested_bytes), oom.verdict)
        });
        format!("{failed} failed{last}")
    }

    fn growth(&self, figure: Figure, value: &str) -> String {
        let Ok([before, now]) = self.replayed_peaks(figure) else { return String::new() }; // no growth to describe
        let kind = if is_about_allocated(figure) { "allocated" } else { "reserved" };
        let peak = format!("the peak of {kind} memory, replayed from an empty pool,");
        if before == now {
            return format!("{peak} is {}, as in the baseline", size(now));
        }
        let (verb, by) = match value.strip_prefix('-') {
            Some(less) => ("shrank", less),
            None => ("grew", value),
        };
        format!("{peak} {verb} by {by}, from {} to {}", size(before), size(now))
    }

    /// The lines of user code that contribute most to the figure, each with its bytes, and the kind of these.
    pub(super) fn lines(&self, figure: Figure) -> (Vec<(FrameReport, u64)>, &'static str) {
        let peak = self.device.peak();
        if figure.needs_baseline() && !self.grown.is_empty() {
            return (self.grown_lines(), "more than in the baseline at the peak of allocated memory");
        }
        match figure {
            Figure::GapRatio | Figure::InactiveSplitRatio | Figure::Fragmentation => {
                (lines_beside_free(self.device), "of free memory kept apart by its blocks")
            }
            Figure::PeakAllocated | Figure::GrowthPeakAllocated | Figure::GrowthRatioPeakAllocated => (
                lines_after(self.device, peak.allocated_event, |state| state == BlockState::ActiveAllocated),
                "held when allocated memory peaked",
            ),
            Figure::PeakReserved | Figure::GrowthPeakReserved | Figure::GrowthRatioPeakReserved => {
                (lines_after(self.device, peak.reserved_event, |_| true), "held when reserved memory peaked")
            }
            Figure::Ooms => {
                // The line that `analyze` names, and the user's that called it, if a package made the request.
                let Some(oom) = self.failures.last() else { return (Vec::new(), "") };
                let is_caller_needed = oom.location.frame.as_ref().is_none_or(|frame| frame.origin != Origin::User);
                let caller = oom.location.called_from.as_ref().filter(|_| is_caller_needed);
                let lines = oom.location.frame.iter().chain(caller).map(|frame| (frame.clone(), oom.requested_bytes));
                (lines.collect(), "requested, and refused")
            }
            Figure::StepGrowth => {
                let suspects = Leaks::from_device(self.device, MAX_LINES, None).suspects.into_iter();
                let lines = suspects.filter_map(|suspect| Some((suspect.location.frame?, suspect.bytes_per_step)));
                (lines.collect(), "more after each step")
            }
            _ => (Vec::new(), ""),
        }
    }

    /// The lines that grew most since the entry of the baseline.
    fn grown_lines(&self) -> Vec<(FrameReport, u64)> {
        let grown = self.grown.iter().filter(|line| line.line > 0 && line.after_bytes > line.before_bytes);
        let lines = grown.map(|line| {
            let frame = FrameReport::new(line.file.clone(), line.line, line.function.clone());
            (frame, line.after_bytes - line.before_bytes)
        });
        lines.take(MAX_LINES).collect()
    }
}

/// Whether a figure of growth is about allocated memory, not reserved memory.
fn is_about_allocated(figure: Figure) -> bool {
    matches!(figure, Figure::GrowthPeakAllocated | Figure::GrowthRatioPeakAllocated)
}

/// Growth of a peak over the baseline in bytes; negative if it shrank.
fn growth([before, now]: [u64; 2]) -> i128 {
    i128::from(now) - i128::from(before)
}

/// Growth of a peak relative to the baseline.
fn growth_ratio(peaks: [u64; 2]) -> Result<f64, UnknownReason> {
    match peaks {
        [0, 0] => Ok(0.0),
        [0, _] => Err(UnknownReason::BaselineIsZero),
        [before, _] => Ok(growth(peaks) as f64 / before as f64),
    }
}

/// The lines with most bytes in the active blocks after `entry` that `is_counted` selects by their state, largest
/// first; `None` is the start of the trace.
fn lines_after(
    device: DeviceStudy<'_, '_>,
    entry: Option<u64>,
    is_counted: fn(BlockState) -> bool,
) -> Vec<(FrameReport, u64)> {
    let mut by_stack = BlockSums::default();
    device.replay(Tracking::Totals, |step| {
        if step.at.map(|(index, _)| index as u64) == entry {
            let blocks = step.tiling.active_blocks().filter(|block| is_counted(block.state));
            by_stack = sum_by_key(blocks.map(|block| (block.context, block.size)));
        }
    });
    by_line(device, by_stack)
}

/// The lines with most free memory beside their blocks at the snapshot, which they keep apart.
fn lines_beside_free(device: DeviceStudy<'_, '_>) -> Vec<(FrameReport, u64)> {
    let blocks = device.device().segments().map(|segment| device.snapshot().blocks_of(segment));
    let pairs = blocks.flat_map(|blocks| stranded_beside(blocks, device.stacks()));
    by_line(device, sum_by_key(pairs.filter(|(_, bytes)| *bytes > 0)))
}

fn by_line(device: DeviceStudy<'_, '_>, by_stack: BlockSums<StackId>) -> Vec<(FrameReport, u64)> {
    let stacks = device.stacks();
    let by_line = sum_by_key(by_stack.into_iter().filter_map(|(id, sum)| Some((stacks.user_frame(id)?, sum.bytes))));
    // The total is only needed for shares, which are not used here.
    top_rows(by_line, BlockSum::default(), MAX_LINES, |line, sum: BlockSum| (stacks.frame_report(line), sum.bytes)).rows
}

/// Each free block with the stacks of its neighbours; one stack if both are of the same line.
fn stranded_beside(blocks: &[Block], stacks: &StackReader<'_>) -> Vec<(StackId, u64)> {
    let free_blocks = blocks.iter().enumerate().filter(|(_, block)| block.state == BlockState::Inactive);
    let pairs = free_blocks.flat_map(|(index, free)| {
        let beside = [index.checked_sub(1), index.checked_add(1)];
        let beside = beside.into_iter().flatten().filter_map(|index| blocks.get(index));
        let mut beside: Vec<StackId> =
            beside.filter(|block| block.state != BlockState::Inactive).map(|block| block.extended_stack).collect();
        beside.dedup_by_key(|stack| stacks.user_frame(*stack));
        beside.into_iter().map(|stack| (stack, free.size))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_from_nothing_has_no_ratio() {
        assert_eq!(growth_ratio([0, 1]), Err(UnknownReason::BaselineIsZero));
        assert_eq!([[0, 0], [4, 4], [4, 5], [4, 1]].map(growth_ratio), [Ok(0.0), Ok(0.0), Ok(0.25), Ok(-0.75)]);
    }
}

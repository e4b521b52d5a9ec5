//! One device under a check: its figures, a sentence for each, and the lines that contribute to them.

use super::changes::LineDelta;
use super::entries::MeasuredDevice;
use crate::analysis::failure::OomReport;
use crate::analysis::{LineShare, lines_after, lines_beside_free};
use crate::base::units::{counted, size};
use crate::base::warning::Code;
use crate::snapshot::BlockState;
use crate::stacks::frames::{FrameReport, Origin};
use crate::study::DeviceStudy;
use crate::study::attribution::Leaks;
use crate::study::figures::{Figure, FigureSource, MemoryState, UnknownReason};

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
        match self.device.lost_history() {
            Some(lost) => Err(UnknownReason::HistoryLost { why: lost.to_string(), at_least }),
            None if self.device.snapshot().warnings.has(Code::UnknownAction) => {
                Err(UnknownReason::UnknownAction { at_least })
            }
            None if over_time.outcome.is_inconsistent() => Err(UnknownReason::Contradictory { at_least }),
            None if !self.accepts_late_start && !self.device.is_start_shown() => {
                Err(UnknownReason::StartsLate { at_least })
            }
            None => Ok(()),
        }
    }
}

impl FigureSource for GatedDevice<'_, '_> {
    fn state(&self) -> MemoryState {
        self.device.memory().state
    }

    fn peak_reserved(&self) -> Result<u64, UnknownReason> {
        self.traced(|| self.device.peak().reserved_bytes)
    }

    fn peak_allocated(&self) -> Result<u64, UnknownReason> {
        self.traced(|| self.device.peak().allocated_bytes)
    }

    fn failed_requests(&self) -> Result<u64, UnknownReason> {
        self.traced(|| self.device.failed_requests().count() as u64)
    }

    fn step_growth(&self) -> Result<u64, UnknownReason> {
        self.check_complete(None)?;
        Ok(Leaks::bytes_per_step(self.device))
    }

    fn replayed_peaks(&self) -> Result<[[u64; 2]; 2], UnknownReason> {
        let now = self.device.figures_from_empty().ok_or(UnknownReason::NoHistory)?;
        let device = self.device.id();
        let baseline = self.before.ok_or_else(|| UnknownReason::NoEntry { device, entry: self.entry.to_owned() })?;
        self.check_complete(None)?;
        let before = baseline.totals;
        Ok([
            [before.peak_allocated_bytes, now.peak_allocated_bytes],
            [before.peak_reserved_bytes, now.peak_reserved_bytes],
        ])
    }
}

impl GatedDevice<'_, '_> {
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
        let Ok([allocated, reserved]) = self.replayed_peaks() else { return String::new() }; // no growth to describe
        let (kind, [before, now]) = match figure {
            Figure::GrowthPeakAllocated | Figure::GrowthRatioPeakAllocated => ("allocated", allocated),
            _ => ("reserved", reserved),
        };
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

    /// The `top` lines that contribute most to the figure, and the kind of their bytes.
    pub(super) fn lines(&self, figure: Figure, top: usize) -> (Vec<LineShare>, &'static str) {
        let peak = self.device.peak();
        if figure.needs_baseline() && !self.grown.is_empty() {
            return (self.grown_lines(top), "more than in the baseline at the peak of allocated memory");
        }
        match figure {
            Figure::GapRatio | Figure::InactiveSplitRatio | Figure::Fragmentation => {
                (lines_beside_free(self.device, top), "of free memory kept apart by its blocks")
            }
            Figure::PeakAllocated | Figure::GrowthPeakAllocated | Figure::GrowthRatioPeakAllocated => {
                let is_allocated = |state: BlockState| state == BlockState::ActiveAllocated;
                let lines = lines_after(self.device, peak.allocated_event, is_allocated, top);
                (lines, "held when allocated memory peaked")
            }
            Figure::PeakReserved | Figure::GrowthPeakReserved | Figure::GrowthRatioPeakReserved => {
                (lines_after(self.device, peak.reserved_event, |_| true, top), "held when reserved memory peaked")
            }
            Figure::Ooms => {
                // The line that `analyze` names, and the user's that called it, if a package made the request.
                let Some(oom) = self.failures.last() else { return (Vec::new(), "") };
                let line = |frame: &FrameReport| LineShare { frame: frame.clone(), bytes: oom.requested_bytes };
                let is_caller_needed = oom.location.frame.as_ref().is_none_or(|frame| frame.origin != Origin::User);
                let caller = oom.location.called_from.as_ref().filter(|_| is_caller_needed);
                let lines = oom.location.frame.iter().chain(caller).map(line);
                (lines.collect(), "requested, and refused")
            }
            Figure::StepGrowth => {
                let suspects = Leaks::from_device(self.device, top, None).suspects.into_iter();
                let lines = suspects.filter_map(|suspect| {
                    Some(LineShare { frame: suspect.location.frame?, bytes: suspect.bytes_per_step })
                });
                (lines.collect(), "more after each step")
            }
            _ => (Vec::new(), ""),
        }
    }

    /// The `top` lines that grew most since the entry of the baseline.
    fn grown_lines(&self, top: usize) -> Vec<LineShare> {
        let grown = self.grown.iter().filter(|line| line.line > 0);
        let share = |line: &LineDelta| LineShare {
            frame: FrameReport::new(line.file.clone(), line.line, line.function.clone()),
            bytes: line.after_bytes.saturating_sub(line.before_bytes),
        };
        grown.map(share).filter(|share| share.bytes > 0).take(top).collect()
    }
}

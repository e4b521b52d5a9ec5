//! The summary of processes on one GPU.

use super::Summary;
use crate::base::units::{counted, duration, size};
use crate::base::warning::{Code, Warning};
use crate::stacks::frames::CodeLocation;
use crate::whatif::together::{Clocks, TimedFailure, TogetherGpu, TogetherReport};

impl TogetherReport {
    /// The smallest GPU that takes the processes, and under which condition: at any timing, limited, or as timed.
    pub(crate) fn best_gpu(&self) -> Option<(&TogetherGpu, &'static str)> {
        let find = |serves: fn(&TogetherGpu) -> bool| self.gpus.iter().find(|gpu| serves(gpu));
        let conditions = [
            (find(|gpu| gpu.fits_at_any_time), " at any timing"),
            (find(|gpu| gpu.fractions.is_some()), " if each is limited to a part of it"),
            (find(TogetherGpu::fits_as_timed), " as they were timed"),
        ];
        conditions.into_iter().find_map(|(gpu, condition)| Some((gpu?, condition)))
    }

    /// The smallest GPU that takes the processes, and under which condition.
    pub fn summary(&self) -> Summary {
        let processes = format!("the {}", counted(self.processes.len() as u64, "process"));
        let limited = self.gpus.iter().find(|gpu| gpu.fractions.is_some());
        let at_any_time = self.gpus.iter().find(|gpu| gpu.fits_at_any_time);
        let smaller = |gpu: &&TogetherGpu| at_any_time.is_none_or(|found| gpu.usable_bytes < found.usable_bytes);
        let action = limited.filter(smaller).and_then(|gpu| self.describe_fractions(gpu));
        let answer = match self.best_gpu() {
            None => self.describe_failure(&processes),
            Some((gpu, condition)) => {
                let peaks = size(self.sum_of_peaks_bytes);
                let is_timed = !gpu.fits_at_any_time && gpu.fractions.is_none();
                let short = if is_timed { self.describe_short_overlap() } else { String::new() };
                let usable = size(gpu.usable_bytes);
                format!(
                    "{processes} fit together on {}{condition}{short}: their peaks add up to {peaks} of {usable}",
                    gpu.gpu
                )
            }
        };
        let is_part =
            |warning: &Warning| matches!(warning.code, Code::EndsInFailure | Code::Truncated | Code::HistoryLost);
        let answer =
            if self.warnings.iter().any(is_part) { format!("as far as they were recorded, {answer}") } else { answer };
        Summary { action, ..Summary::from_answer(answer) }
    }

    /// A note if the recordings overlap for less than half of their time.
    fn describe_short_overlap(&self) -> String {
        let overlap = self.overlap_us.zip(self.span_us).filter(|(overlap, span)| *overlap < span / 2);
        let describe =
            |(overlap, span)| format!(" (recorded together for only {} of {})", duration(overlap), duration(span));
        overlap.map(describe).unwrap_or_default()
    }

    /// On the GPU with most memory.
    fn describe_failure(&self, processes: &str) -> String {
        let Some(gpu) = self.gpus.last() else { return format!("{processes} have no GPU") };
        let usable = size(gpu.usable_bytes);
        let start = format!("{processes} do not fit together on {}", gpu.gpu);
        match gpu.as_timed.as_ref().and_then(|run| run.failed.as_ref()) {
            Some(failed) => format!("{start}: {}", self.describe_request(failed)),
            None => match self.sum_of_smallest_bytes {
                Some(needed) if needed > gpu.usable_bytes => {
                    format!("{start}: they need at least {} of {usable}", size(needed))
                }
                _ => format!("{start}: their peaks add up to {} of {usable}", size(self.sum_of_peaks_bytes)),
            },
        }
    }

    /// `rollout.pickle fails at a request of 20 MiB (app.py:3 in f) while the others have 12 GiB reserved`
    pub fn describe_request(&self, failed: &TimedFailure) -> String {
        let path = self.processes.get(failed.process).map_or("", |process| process.path.as_str());
        let reserved = failed.reserved_by_process.iter().enumerate();
        let others = reserved.filter(|(process, _)| *process != failed.process).map(|(_, bytes)| *bytes);
        let others = size(others.fold(0, u64::saturating_add));
        if failed.requested_bytes == 0 {
            return "the memory from before the recordings alone exceeds the device".to_owned();
        }
        let line = failed.location.frame.is_some().then(|| format!(" ({})", CodeLocation::label(&failed.location)));
        format!(
            "{path} fails at a request of {}{} while other processes have {others} reserved",
            size(failed.requested_bytes),
            line.unwrap_or_default()
        )
    }

    /// `to fit them on l4 whatever their timing, limit each: 0.4 in a.pickle, 0.55 in b.pickle`
    fn describe_fractions(&self, gpu: &TogetherGpu) -> Option<String> {
        let fractions = self.processes.iter().zip(gpu.fractions.as_ref()?);
        let fractions: Vec<String> =
            fractions.map(|(process, fraction)| format!("{fraction} in {}", process.path)).collect();
        Some(format!(
            "to fit them on {} whatever their timing, limit each with torch.cuda.set_per_process_memory_fraction: {}",
            gpu.gpu,
            fractions.join(", ")
        ))
    }
}

impl TogetherGpu {
    /// Whether every request is served as the processes were timed.
    pub fn fits_as_timed(&self) -> bool {
        self.as_timed.as_ref().is_some_and(|run| run.failed.is_none())
    }
}

impl Clocks {
    /// How the recordings are timed, in a sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Overlap => "the replay as timed has the requests of all processes in the order of their clocks",
            Self::Apart => "the recordings do not overlap in time: only their peaks can be added up",
            Self::Missing => "a recording has no times (PyTorch before 2.2): only their peaks can be added up",
        }
    }
}

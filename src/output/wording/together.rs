//! The summary of processes on one GPU.

use super::Summary;
use crate::base::units::{counted, size};
use crate::output::document::{Text, alarm, strong};
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

    /// `2 processes fit together on l4 at any timing`
    pub(crate) fn headline(&self) -> Text {
        let processes = counted(self.processes.len() as u64, "process");
        if let Some((gpu, condition)) = self.best_gpu() {
            return strong(format!("{processes} fit together on {}", gpu.gpu)).and(condition);
        }
        let gpu = self.gpus.last().map_or_else(String::new, |gpu| format!(" on {}", gpu.gpu));
        alarm(format!("{processes} do not fit together{gpu}"))
    }

    /// The request that fails on the GPU with most memory, if none takes the processes.
    pub(crate) fn describe_failure(&self) -> Option<String> {
        let gpu = self.gpus.last().filter(|_| self.best_gpu().is_none())?;
        let failed = gpu.as_timed.as_ref()?.failed.as_ref()?;
        Some(format!("on {}, {}", gpu.gpu, self.describe_request(failed)))
    }

    /// The smallest GPU that takes the processes, and under which condition.
    pub fn summary(&self) -> Summary {
        let limited = self.gpus.iter().find(|gpu| gpu.fractions.is_some());
        let at_any_time = self.gpus.iter().find(|gpu| gpu.fits_at_any_time);
        let smaller = |gpu: &&TogetherGpu| at_any_time.is_none_or(|found| gpu.usable_bytes < found.usable_bytes);
        let action = limited.filter(smaller).and_then(|gpu| self.describe_fractions(gpu));
        let why = self.describe_failure();
        let why = why.unwrap_or_else(|| format!("their peaks add up to {}", size(self.sum_of_peaks_bytes)));
        Summary { action, ..Summary::from_answer(format!("{}: {why}", self.headline().raw())) }
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

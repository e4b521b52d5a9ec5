//! The summary of a plan, and the words of its cells.

use itertools::Itertools as _;

use super::Summary;
use super::fit::describe_range_by_data;
use crate::analysis::{SizeRunReport, SizeSearchReport, TrialOutcome, TrialReport, TrialsReport};
use crate::base::units::{count, size};
use crate::snapshot::Serving;
use crate::stacks::frames::CodeLocation;
use crate::whatif::Sureness;
use crate::whatif::plan::{PlanCell, PlanChange, PlanGpu, PlanReport};

/// Most GPUs whose sizes the first line lists.
const MAX_LISTED: usize = 5;

impl PlanReport {
    /// The smallest GPU for the wanted size, or the sizes of all.
    pub fn summary(&self) -> Summary {
        let (answer, action) = match self.wanted_size {
            Some(wanted) => self.describe_smallest(wanted),
            None => (self.describe_sizes(), self.describe_best_change()),
        };
        Summary { action, ..Summary::from_answer(answer) }
    }

    /// `the largest BATCH: 24 on t4, 66 on a10`
    fn describe_sizes(&self) -> String {
        let name = &self.name;
        let of = |gpu: &PlanGpu| match gpu.cells.first().map(|cell| (cell.size, cell)) {
            Some((Some(0), _)) => format!("none on {}", gpu.gpu),
            Some((Some(_), cell)) => format!("{} on {}", cell.label(), gpu.gpu),
            _ => format!("any on {}", gpu.gpu),
        };
        match self.gpus.as_slice() {
            [first, .., last] if self.gpus.len() > MAX_LISTED => {
                format!("the largest {name} as it is: from {} to {}", of(first), of(last))
            }
            gpus => format!("the largest {name} as it is: {}", gpus.iter().map(of).format(", ")),
        }
    }

    /// The change with which most fits on the smallest GPU.
    fn describe_best_change(&self) -> Option<String> {
        let gpu = self.gpus.first()?;
        let (as_is, others) = gpu.cells.split_first()?;
        let best = others.iter().filter(|cell| cell.size > as_is.size).max_by_key(|cell| cell.size)?;
        Some(format!("on {}, {} {} with {}", gpu.gpu, self.name, best.label(), best.describe_change()))
    }

    fn describe_smallest(&self, wanted: u64) -> (String, Option<String>) {
        let name = format!("{} {}", self.name, count(wanted));
        let serves = |cell: &PlanCell| cell.size.is_none_or(|size| size >= wanted);
        let as_is = self.gpus.iter().find(|gpu| gpu.cells.first().is_some_and(serves));
        let mut smaller = self.gpus.iter().take_while(|gpu| as_is.is_none_or(|found| found.gpu != gpu.gpu));
        let changed = smaller.find_map(|gpu| Some((gpu, gpu.cells.iter().skip(1).find(|cell| serves(cell))?)));
        let action = changed.map(|(gpu, cell)| {
            let verb = if cell.certainty == Sureness::Confirmed { "fits" } else { "should fit" };
            format!("{name} {verb} on {} with {}", gpu.gpu, cell.describe_change())
        });
        let answer = match as_is {
            Some(gpu) => {
                let is_certain = gpu.cells[0].certainty <= Sureness::Checked;
                let verb = if is_certain { "fits" } else { "should fit" };
                format!("the smallest GPU for {name} is {}: it {verb} as it is, in {}", gpu.gpu, size(gpu.usable_bytes))
            }
            None => format!("{name} fits none of these GPUs as it is"),
        };
        (answer, action)
    }
}

impl PlanCell {
    /// The size: `24`, or `about 24` if the changed calls are inferred, a warning makes it an estimate, or other kernels
    /// may run there than at the recorded sizes.
    pub fn label(&self) -> String {
        self.label_with("about ")
    }

    /// The same for a table: `24 *` if a run confirmed it, or `~24`.
    pub fn short_label(&self) -> String {
        let star = if self.certainty == Sureness::Confirmed { " *" } else { "" };
        format!("{}{star}", self.label_with("~"))
    }

    fn label_with(&self, about: &str) -> String {
        let is_sure = self.sure == Sureness::Checked && self.certainty <= Sureness::Checked;
        match self.size {
            None => "any".to_owned(),
            Some(0) => "none".to_owned(),
            Some(size) if is_sure => count(size),
            Some(size) => format!("{about}{}", count(size)),
        }
    }

    /// The change: `activation checkpointing at model.py:12`.
    pub fn describe_change(&self) -> String {
        let what = self.change.title();
        let line = self.location.as_ref().filter(|_| self.change == PlanChange::Checkpoint);
        let others = match self.other_locations.len() as u64 {
            0 => String::new(),
            1 => " and 1 other line".to_owned(),
            n => format!(" and {n} other lines"),
        };
        line.map_or_else(|| what.to_owned(), |line| format!("{what} of {}{others}", CodeLocation::label(line)))
    }
}

impl PlanChange {
    /// The change in words.
    pub fn title(self) -> &'static str {
        match self {
            Self::AsIs => "as it is",
            Self::ExpandableSegments => "expandable_segments:True",
            Self::Checkpoint => "activation checkpointing",
        }
    }
}

impl TrialsReport {
    /// The first remedy with which the job ends, or how the first run ends.
    pub fn summary(&self) -> Summary {
        let gpu = &self.gpu;
        let Some((first, others)) = self.runs.split_first() else {
            return Summary::from_answer(format!("nothing was run on {gpu} (dry run)"));
        };
        if first.serving.is_some() {
            return self.summary_of_engine();
        }
        if first.outcome.is_end() {
            return Summary::from_answer(format!("the job runs to its end on {gpu} (dry run)"));
        }
        if !matches!(first.outcome, TrialOutcome::Fails | TrialOutcome::FailsLater) {
            let reason = first.reason.as_deref().unwrap_or_default();
            return Summary::from_answer(format!("how the job ends on {gpu} (dry run) is not known: {reason}"));
        }
        let ending = others.iter().find(|run| run.outcome == TrialOutcome::Ends);
        let ending = ending.or_else(|| others.iter().find(|run| run.outcome.is_end()));
        let Some((ending, remedy)) = ending.and_then(|run| Some((run, run.remedy.as_ref()?))) else {
            let tried = if others.is_empty() { "no remedy was tried" } else { "no remedy that was tried helps" };
            return Summary::from_answer(format!("{tried} on {gpu} (dry run)"));
        };
        Summary {
            action: Some(remedy.clone()),
            copy: ending.copy.clone(),
            ..Summary::from_answer(format!("with {remedy} the job runs to its end on {gpu} (dry run)"))
        }
    }

    /// The start with most tokens of KV cache.
    fn summary_of_engine(&self) -> Summary {
        let tokens = |run: &TrialReport| run.serving.as_ref().and_then(|serving| serving.kv_cache_tokens);
        let compiles = |run: &TrialReport| run.serving.as_ref().is_some_and(|serving| serving.compiled);
        if let [first, later] = &self.runs[..]
            && compiles(first)
            && !compiles(later)
            && let Some((first, later)) = tokens(first).zip(tokens(later))
        {
            let (gpu, first, later) = (&self.gpu, count(first), count(later));
            let answer = format!("{first} tokens at the first start on {gpu} (dry run), which compiles; {later} later");
            return Summary::from_answer(answer);
        }
        let engine = self.runs[0].serving.as_ref().map_or("it", |serving| &*serving.engine);
        let tried = self.runs.iter().filter_map(|run| run.remedy.as_deref()).join(" or ");
        let starts = self.runs.iter().filter(|run| run.outcome.is_end());
        let Some(best) = starts.max_by_key(|run| tokens(run)) else {
            let also = if tried.is_empty() { String::new() } else { format!(", nor with {tried}") };
            return Summary::from_answer(format!("{engine} does not start on {} (dry run){also}", self.gpu));
        };
        let gpus = best.serving.as_ref().map_or(1, Serving::gpus);
        let on = if gpus > 1 { format!("{gpus} x {}", self.gpu) } else { self.gpu.clone() };
        let most = count(tokens(best).unwrap_or(0));
        let answer = match &best.remedy {
            Some(option) if self.runs[0].outcome.is_end() => {
                format!("{engine} has most room on {on} (dry run) with {option}: {most} tokens")
            }
            Some(option) => format!("{engine} starts on {on} (dry run) with {option}: {most} tokens"),
            None => format!("{engine} has most room on {on} (dry run) unchanged: {most} tokens"),
        };
        Summary { action: best.remedy.clone(), copy: best.copy.clone(), ..Summary::from_answer(answer) }
    }
}

impl SizeRunReport {
    /// `completes with 20 GiB reserved`
    pub fn describe(&self) -> String {
        if self.fits {
            return format!("completes with {} reserved", size(self.reserved_bytes));
        }
        let line = self.location.as_ref().map_or_else(|| "an unknown line".to_owned(), CodeLocation::label);
        format!("fails at {line} ({} requested)", size(self.requested_bytes.unwrap_or_default()))
    }
}

impl SizeSearchReport {
    /// The largest size that fits.
    pub fn summary(&self) -> Summary {
        Summary::from_answer(self.describe_answer())
    }

    fn describe_answer(&self) -> String {
        let (name, gpu) = (&self.name, &self.gpu);
        let kind = self.only.as_ref().map_or_else(String::new, |only| format!(" ({only})"));
        let Some(run) = self.largest_run() else {
            let tried = if self.is_exact { "" } else { " that was tried" };
            return format!("no {name}{kind}{tried} fits on {gpu} (dry run)");
        };
        if self.every_size_fits {
            let largest = count(run.size);
            return format!(
                "every {name} should fit on {gpu} (dry run): its memory does not grow up to {largest}; none above was run"
            );
        }
        let largest = self.largest.unwrap_or(run.size);
        let adjective = if self.is_exact { "largest" } else { "largest tried" };
        let answer = match self.runs.iter().rfind(|run| run.fits_in_worst_case) {
            Some(worst) if worst.size < largest => {
                format!("{} in the worst case, otherwise {}", count(worst.size), count(largest))
            }
            Some(_) => count(largest),
            None => format!("{}, but no size that was run fits in the worst case", count(largest)),
        };
        let unknown = match self.fails {
            _ if self.is_exact => String::new(),
            Some(fails) => format!("; {} fails, none between was run", count(fails)),
            None => match self.refused.iter().map(|refused| refused.size).filter(|size| *size > largest).min() {
                Some(refused) => format!("; {} ends with an error of the program", count(refused)),
                None => "; none above was run".to_owned(),
            },
        };
        let by_data = self.by_data.map_or_else(String::new, describe_range_by_data);
        format!("{adjective} {name}{kind} on {gpu} (dry run): {answer}{unknown}{by_data}")
    }
}

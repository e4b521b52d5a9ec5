//! Sentences about dry runs with remedies, and about dry runs at several sizes.

use super::Summary;
use crate::analysis::{SizeRunReport, SizeSearchReport, TrialOutcome, TrialReport, TrialsReport};
use crate::base::units::{count, size};
use crate::stacks::frames::CodeLocation;

impl TrialsReport {
    /// The first remedy with which the job ends, or how the first run ends.
    pub fn summary(&self) -> Summary {
        let gpu = &self.gpu;
        let Some((first, others)) = self.runs.split_first() else {
            return Summary::from_answer(format!("nothing was run on {gpu} (dry run)"));
        };
        if first.outcome.is_end() || !first.outcome.is_failure() {
            return Summary::from_answer(format!("the job {} on {gpu} (dry run)", first.describe_outcome()));
        }
        let ending = others.iter().find(|run| run.outcome == TrialOutcome::Ends);
        let ending = ending.or_else(|| others.iter().find(|run| run.outcome.is_end()));
        let Some(ending) = ending else {
            let tried = if others.is_empty() { "no remedy was tried" } else { "no remedy that was tried helps" };
            return Summary::from_answer(format!("{tried} on {gpu} (dry run): the job {}", first.describe_outcome()));
        };
        Summary {
            action: ending.remedy.clone(),
            copy: ending.copy.clone(),
            ..Summary::from_answer(format!("on {gpu} (dry run), {}", ending.describe()))
        }
    }
}

impl TrialOutcome {
    fn is_failure(self) -> bool {
        matches!(self, Self::Fails | Self::FailsLater)
    }
}

impl TrialReport {
    /// `with KEY:VALUE: runs to its end, 212 MiB headroom`
    pub fn describe(&self) -> String {
        let remedy = self.remedy.as_ref().map_or_else(|| "unchanged".to_owned(), |remedy| format!("with {remedy}"));
        format!("{remedy}: {}", self.describe_outcome())
    }

    pub(crate) fn describe_outcome(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or_default();
        let headroom = size(self.headroom_bytes.unwrap_or_default());
        let failure = || describe_failure(self.location.as_ref(), self.requested_bytes);
        match self.outcome {
            TrialOutcome::Ends => format!("runs to its end, {headroom} headroom"),
            TrialOutcome::MayEnd => format!("runs to its end, {headroom} headroom, but may not on a GPU: {reason}"),
            TrialOutcome::Fails => format!("fails at {}", failure()),
            TrialOutcome::FailsLater => format!("fails later, at {}", failure()),
            TrialOutcome::Unknown => format!("not known: {reason}"),
            TrialOutcome::NotInEffect => "not in effect: the program sets its own; change it there".to_owned(),
        }
    }
}

fn describe_failure(location: Option<&CodeLocation>, bytes: Option<u64>) -> String {
    let line = location.map_or_else(|| "an unknown line".to_owned(), CodeLocation::label);
    format!("{line} ({} requested)", size(bytes.unwrap_or_default()))
}

impl SizeRunReport {
    /// `completes with 20 GiB reserved`
    pub fn describe(&self) -> String {
        if self.fits {
            format!("completes with {} reserved", size(self.reserved_bytes))
        } else {
            format!("fails at {}", describe_failure(self.location.as_ref(), self.requested_bytes))
        }
    }
}

impl SizeSearchReport {
    /// The largest size that fits.
    pub fn summary(&self) -> Summary {
        Summary::from_answer(self.describe())
    }

    fn describe(&self) -> String {
        let (name, gpu) = (&self.name, &self.gpu);
        let kind = self.only.as_ref().map_or_else(String::new, |only| format!(" ({only})"));
        if self.every_size_fits {
            return format!("every {name} fits on {gpu} (dry run): its memory does not grow");
        }
        let (Some(largest), Some(run)) = (self.largest, self.largest_run()) else { return self.describe_none(&kind) };
        let fits = run.describe();
        let and_high = match self.fails.and_then(|size| self.run_at(size)) {
            Some(high) if self.is_exact => format!(", {} {}", count(high.size), high.describe()),
            Some(high) => format!("; {} {}; sizes in between were not tried", count(high.size), high.describe()),
            None => String::new(),
        };
        let note = if self.is_memory_unknown {
            "; some memory is unknown without a GPU, so the largest may be less: see the snapshot"
        } else {
            ""
        };
        let worst = "in the worst case (workspaces of libraries, addresses)";
        let it = if largest == run.size { "it".to_owned() } else { count(run.size) };
        let adjective = if self.is_exact { "largest" } else { "largest tried" };
        let otherwise = || format!("otherwise the {adjective} is {}: it {fits}{and_high}{note}", count(run.size));
        match self.largest_in_worst_case {
            None => format!("no tested {name}{kind} fits on {gpu} (dry run) {worst}; {}", otherwise()),
            Some(at) if at != run.size => {
                format!("{name} = {} fits on {gpu} (dry run) {worst}; {}", count(at), otherwise())
            }
            Some(_) if self.is_exact => format!(
                "the largest {name}{kind} that fits on {gpu} is {} (dry run): {it} {fits}{and_high}{note}",
                count(largest)
            ),
            Some(_) => {
                let more = if self.fails.is_none() { ", and more may" } else { "" };
                format!("{name} = {} fits on {gpu} (dry run){more}: it {fits}{and_high}{note}", count(run.size))
            }
        }
    }

    /// No size is known to fit.
    fn describe_none(&self, kind: &str) -> String {
        let (name, gpu) = (&self.name, &self.gpu);
        let Some(smallest) = self.fails.and_then(|size| self.run_at(size)) else {
            return format!("no {name}{kind} was tried on {gpu} (dry run)");
        };
        let rest = if self.is_exact { "" } else { "; smaller sizes were not tried" };
        format!("no {name}{kind} fits on {gpu} (dry run): {} {}{rest}", count(smallest.size), smallest.describe())
    }

    /// The answer without the figures of the runs.
    pub(crate) fn headline(&self) -> String {
        let (name, gpu) = (&self.name, &self.gpu);
        let kind = self.only.as_ref().map_or_else(String::new, |only| format!(" ({only})"));
        let adjective = if self.is_exact { "largest" } else { "largest tried" };
        let run = self.largest_run().map(|run| self.largest.unwrap_or(run.size));
        match (run, self.largest_in_worst_case) {
            _ if self.every_size_fits => format!("every {name} fits on {gpu} (dry run): its memory does not grow"),
            (None, _) => format!("no {name}{kind} fits on {gpu} (dry run)"),
            (Some(largest), Some(worst)) if worst < largest => {
                let [largest, worst] = [largest, worst].map(count);
                format!("{adjective} {name}{kind} on {gpu} (dry run): {worst} in the worst case, otherwise {largest}")
            }
            (Some(largest), None) => {
                let largest = count(largest);
                format!("{adjective} {name}{kind} on {gpu} (dry run): {largest}, but none fits in the worst case")
            }
            (Some(largest), Some(_)) => format!("{adjective} {name}{kind} on {gpu} (dry run): {}", count(largest)),
        }
    }
}

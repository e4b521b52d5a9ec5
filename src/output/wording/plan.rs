//! The summary of a plan, and the words of its cells.

use super::Summary;
use crate::base::units::{count, size};
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
            gpus => format!("the largest {name} as it is: {}", gpus.iter().map(of).collect::<Vec<_>>().join(", ")),
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
        let what = self.change.title(self.ranks);
        let line = self.location.as_ref().filter(|_| self.change == PlanChange::Checkpoint);
        let others = match self.other_locations.len() as u64 {
            0 => String::new(),
            1 => " and 1 other line".to_owned(),
            n => format!(" and {n} other lines"),
        };
        line.map_or_else(|| what.clone(), |line| format!("{what} of {}{others}", CodeLocation::label(line)))
    }
}

impl PlanChange {
    /// The change in words, with the number of ranks.
    pub fn title(self, ranks: Option<u64>) -> String {
        match (self, ranks) {
            (Self::AsIs, _) => "as it is".to_owned(),
            (Self::ExpandableSegments, _) => "expandable_segments:True".to_owned(),
            (Self::Checkpoint, _) => "activation checkpointing".to_owned(),
            (Self::StateSharded, Some(ranks)) => format!("optimizer state over {ranks} ranks"),
            (Self::StateSharded, None) => "sharded optimizer state".to_owned(),
        }
    }
}

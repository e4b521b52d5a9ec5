//! The first change of the table that serves a failed request.

use itertools::Itertools as _;

use super::facts::{Case, Fact, Request};
use super::table::{CureKind, CureRow, OF_A_VARIABLE, OF_STACKS, OF_THE_PROCESS};
use crate::analysis::failure::OomReport;
use crate::stacks::frames::{FrameReport, forward_slashes};
use crate::study::attribution::KeptGroup;
use crate::study::variables::{KeptByVariable, KeptReport};
use crate::whatif::JobOutcome;

/// A change of the program, and the memory that it frees.
#[derive(Debug, Clone, PartialEq)]
pub struct Cure {
    /// The row of the table.
    pub row: &'static CureRow,
    /// The holder.
    pub holder: CureHolder,
    /// The module that the change is about, or the variables to delete.
    pub subject: Option<String>,
    /// The line that calls the model or `backward()`.
    pub call: Option<FrameReport>,
    /// The job in a replay that frees the memory of the holder; absent if it was not replayed.
    pub then: Option<JobOutcome>,
}

/// The holder of the memory that a change frees.
#[derive(Debug, Clone, PartialEq)]
pub enum CureHolder {
    /// A variable; items of a container are one row. For a module that nobody trains, a variable that keeps graphs.
    Variable(Box<KeptByVariable>),
    /// Calls of the program, as far as stacks show it.
    Calls(Box<KeptGroup>),
}

/// The changes for groups of blocks that are at least as large as the shortfall of `oom`. Groups of at least half the size
/// of the largest come first, in the order of the table.
pub(in crate::analysis) fn find_cures_by_stacks(oom: &OomReport) -> Vec<(Cure, &KeptGroup)> {
    let groups = oom.held.iter().flat_map(|held| &held.kept_groups);
    let groups: Vec<&KeptGroup> = groups.filter(|group| group.bytes >= oom.shortfall_bytes).collect();
    let most = groups.iter().map(|group| group.bytes).max().unwrap_or(0);
    let found = groups.into_iter().filter_map(|group| {
        let row = OF_STACKS.iter().position(|row| row.holds_of_group(group))?;
        (OF_STACKS[row].kind != CureKind::Needed).then_some((group.bytes < most / 2, row, group))
    });
    let found = found.sorted_by_key(|(is_small, row, _)| (*is_small, *row)); // stable: the largest first
    let cures = found.map(|(_, row, group)| {
        let holder = CureHolder::Calls(Box::new(KeptGroup { blocks: Vec::new(), ..group.clone() }));
        (Cure { row: &OF_STACKS[row], holder, subject: None, call: None, then: None }, group)
    });
    cures.collect()
}

/// The change that frees enough to serve the request of `oom`: for the largest variable that has one, else for several
/// variables together.
pub(in crate::analysis) fn find_cure(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    let (shortfall_bytes, allocated_bytes) = (oom.shortfall_bytes, oom.allocated_bytes);
    cure_of(Request { frames: &oom.frames, shortfall_bytes, allocated_bytes }, kept)
}

pub(super) fn cure_of(request: Request<'_>, kept: &KeptReport) -> Option<Cure> {
    let cases = kept.keepers.iter().map(|keeper| Case { request, kept, keeper });
    let of_a_variable = cases.clone().filter(|case| request.is_served_by(case.keeper.bytes)).find_map(|case| {
        let row = OF_A_VARIABLE.iter().find(|row| row.holds(case))?;
        (row.kind != CureKind::Needed).then(|| Cure::new(row, case))
    });
    of_a_variable.or_else(|| {
        OF_THE_PROCESS.iter().find_map(|row| {
            let cases = cases.clone().filter(|case| row.holds(*case));
            let largest = cases.clone().find(|case| row.kind != CureKind::Narrow || case.keeper.written.is_some())?;
            request.is_served_by(cases.map(|case| row.freed_bytes(case.keeper)).sum()).then(|| Cure::new(row, largest))
        })
    })
}

impl CureRow {
    /// Bytes of `keeper` that the change frees.
    fn freed_bytes(&self, keeper: &KeptByVariable) -> u64 {
        match self.kind {
            // Other variables may lead to the same graph.
            CureKind::DeleteUnread => keeper.bytes - keeper.graph_bytes,
            CureKind::Narrow => keeper.bytes / 2,
            CureKind::NoGrad | CureKind::NoGradInEvaluation | CureKind::Freeze => keeper.graph_bytes,
            _ => keeper.bytes,
        }
    }
}

impl Cure {
    /// Whether stacks show that each pass of a loop keeps more.
    pub(in crate::analysis) fn is_growth(&self) -> bool {
        self.row.when.iter().any(|fact| matches!(fact, Fact::Gathered | Fact::MadeAgain))
    }

    /// The bytes of the holder, if earlier steps have collected them.
    pub(in crate::analysis) fn collected_bytes(&self) -> Option<u64> {
        let is_collected = self.is_growth() || self.row.when.iter().any(|it| matches!(it, Fact::Filled | Fact::Items));
        let bytes = match &self.holder {
            CureHolder::Variable(keeper) => keeper.bytes,
            CureHolder::Calls(group) => group.bytes,
        };
        is_collected.then_some(bytes)
    }

    /// The cure for memory that a failed call left: with `keeper`, the variable that keeps its exception.
    pub(in crate::analysis) fn of_exception(self, keeper: Option<KeptByVariable>) -> Self {
        match (keeper, OF_A_VARIABLE.iter().find(|row| row.kind == CureKind::KeepNoException)) {
            (Some(keeper), Some(row)) => Self { row, holder: CureHolder::Variable(Box::new(keeper)), ..self },
            _ => self,
        }
    }

    fn new(row: &'static CureRow, case: Case<'_>) -> Self {
        let kept = case.kept;
        let subject = match row.kind {
            CureKind::DeleteUnread => Some(case.unread_variables()),
            CureKind::FreezeIdle => kept.idle.first().cloned(),
            CureKind::FreezeBase => kept.adapted.first().cloned(),
            CureKind::Freeze => kept.untrained.first().cloned(),
            CureKind::NoGradInEvaluation => kept.evaluating.first().cloned(),
            _ => None,
        };
        let call = match row.kind {
            CureKind::GradWithGraph => kept.graph_backward.clone(),
            CureKind::NoGrad | CureKind::NoGradInEvaluation => model_call(case.request.frames),
            _ => None,
        };
        Self { row, holder: CureHolder::Variable(Box::new(case.keeper.clone())), subject, call, then: None }
    }
}

/// The outermost line that calls a module.
fn model_call(frames: &[FrameReport]) -> Option<FrameReport> {
    let call = frames.iter().rposition(|frame| forward_slashes(&frame.file).ends_with("torch/nn/modules/module.py"))?;
    frames.get(call + 1).cloned()
}

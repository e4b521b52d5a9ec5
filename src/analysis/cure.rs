//! The change of the program that frees what a variable keeps: a function of who keeps the memory, what it keeps, and
//! the statement that put it there. Names and statements are the recorder's; nothing here is inferred from categories.

use crate::analysis::failure::OomReport;
use crate::base::units::ratio;
use crate::snapshot::{BackwardCall, RootKind, TensorKind, WriteKind};
use crate::stacks::frames::{FrameReport, forward_slashes};
use crate::study::variables::{KeptByVariable, KeptReport, Written};

/// A change of the program, and the variable that it frees.
#[derive(Debug, Clone, PartialEq)]
pub struct Cure {
    /// The change.
    pub kind: CureKind,
    /// The variable; items of a container are one row. Of a module that nobody trains, a variable that keeps graphs.
    pub keeper: Box<KeptByVariable>,
}

/// A change of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CureKind {
    /// Give a queue a bound.
    BoundQueue,
    /// Put values without their graphs into a container.
    PutValue,
    /// Add values without their graphs to a sum.
    AddValue,
    /// Call `backward` for each part of a sum.
    BackwardEach,
    /// Detach what goes from one step to the next.
    DetachState,
    /// Put copies in host memory into a container.
    PutOnHost,
    /// Join parts in host memory.
    JoinOnHost,
    /// Keep copies of weights in host memory.
    WeightsOnHost,
    /// Keep no whole models in a container.
    KeepNoModels,
    /// Keep no earlier optimizers.
    KeepNoOptimizers,
    /// Keep no exception, because its traceback has the variables of the call that failed.
    KeepNoException,
    /// Leave the handler of an exception before going on.
    LeaveHandler,
    /// Limit the entries of a cache.
    LimitCache,
    /// Limit the results that `functools.lru_cache` keeps.
    LimitResults,
    /// Repeat a loader in another way than `itertools.cycle`, which keeps every item.
    RepeatLoader,
    /// Limit a tensor to which each step joins more.
    LimitTensor,
    /// Delete a variable at the end of each step, because its next value is made while it keeps the last one.
    DeleteAtEnd,
    /// Keep a data set in host memory.
    DataOnHost,
    /// Load a checkpoint into host memory.
    CheckpointOnHost,
    /// Run the model without graphs at the line: the process has no optimizer.
    NoGrad(Option<FrameReport>),
    /// Freeze a module: no optimizer has any of its parameters, and it is called with graphs.
    Freeze(String),
}

/// Smaller shares of the allocated memory do not lead.
const MIN_SHARE: f64 = 0.1;
/// From this share on, a variable keeps its memory through graphs.
const GRAPH_SHARE: f64 = 0.5;
/// A container with fewer items is no collection.
const MIN_ITEMS: u64 = 3;

/// The cure for the largest variable that has one, if freeing it serves the request of `oom`.
pub(super) fn cure(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    let is_enough = |keeper: &&KeptByVariable| keeper.bytes >= oom.shortfall_bytes && keeper.share_ratio >= MIN_SHARE;
    let mut keepers = kept.keepers.iter().filter(is_enough);
    let found = keepers.find_map(|keeper| Some(Cure { kind: cure_of(oom, keeper)?, keeper: Box::new(keeper.clone()) }));
    found.or_else(|| needless_graphs(oom, kept))
}

/// The cure for what `keeper` keeps; `None` if a program needs it, or if it is not known what it is.
fn cure_of(oom: &OomReport, keeper: &KeptByVariable) -> Option<CureKind> {
    let container = keeper.container.as_ref().filter(|container| container.items >= MIN_ITEMS);
    if is_exception(keeper) {
        return Some(if keeper.container.is_some() { CureKind::KeepNoException } else { CureKind::LeaveHandler });
    }
    if container.is_some_and(|it| it.r#type == "deque" && it.name.ends_with(".queue")) {
        return Some(CureKind::BoundQueue);
    }
    match container.map(|container| &*container.r#type) {
        Some("lru_cache") => return Some(CureKind::LimitResults),
        Some("cycle") => return Some(CureKind::RepeatLoader),
        _ => {}
    }
    let write = keeper.written.as_ref()?;
    if write.kind == WriteKind::Assign && write.in_loop && is_running(oom, &write.at) {
        return Some(CureKind::DeleteAtEnd);
    }
    let is_filled = container.is_some() && matches!(write.kind, WriteKind::Put | WriteKind::Extend | WriteKind::Store);
    match keeper.kind {
        Some(TensorKind::OptimizerState) => is_filled.then_some(CureKind::KeepNoOptimizers),
        Some(TensorKind::Buffer) if write.kind == WriteKind::Join => Some(CureKind::LimitTensor),
        Some(TensorKind::Parameter | TensorKind::Buffer | TensorKind::Gradient) => {
            is_filled.then_some(CureKind::KeepNoModels)
        }
        Some(TensorKind::Saved | TensorKind::Variable) | None if keeps_graphs(keeper) => {
            cure_of_graphs(write, is_filled)
        }
        Some(TensorKind::Saved | TensorKind::Variable) | None if is_filled => Some(cure_of_items(write)),
        Some(TensorKind::Saved | TensorKind::Variable) | None => cure_of_tensor(write),
    }
}

/// Whether the request fails in the statement at `line`.
fn is_running(oom: &OomReport, line: &FrameReport) -> bool {
    oom.frames.iter().any(|frame| (&frame.file, frame.line) == (&line.file, line.line))
}

fn is_exception(keeper: &KeptByVariable) -> bool {
    let name = keeper.name.as_deref().unwrap_or_default();
    keeper.root == Some(RootKind::Exception) || name.contains(".__traceback__")
}

fn keeps_graphs(keeper: &KeptByVariable) -> bool {
    ratio(keeper.graph_bytes, keeper.bytes) >= GRAPH_SHARE
}

fn cure_of_graphs(write: &Written, is_filled: bool) -> Option<CureKind> {
    match (write.kind, write.backward) {
        // The graphs are for one backward pass at the end.
        (_, Some(BackwardCall::Function)) if is_filled => Some(CureKind::BackwardEach),
        _ if is_filled => Some(CureKind::PutValue),
        (WriteKind::Accumulate, Some(BackwardCall::Itself)) if write.in_loop => Some(CureKind::BackwardEach),
        (WriteKind::Accumulate, _) if write.in_loop => Some(CureKind::AddValue),
        (WriteKind::Recur, Some(BackwardCall::Loop)) => Some(CureKind::DetachState),
        _ => None,
    }
}

fn cure_of_items(write: &Written) -> CureKind {
    let value = write.value.as_deref().unwrap_or_default();
    match write.kind {
        _ if value.contains("state_dict(") || value.contains("deepcopy(") => CureKind::WeightsOnHost,
        WriteKind::Store => CureKind::LimitCache,
        _ => CureKind::PutOnHost,
    }
}

fn cure_of_tensor(write: &Written) -> Option<CureKind> {
    let value = write.value.as_deref().unwrap_or_default();
    let is_on_device = [".to(", ".cuda(", "device=", "cuda"].iter().any(|text| value.contains(text));
    match write.kind {
        WriteKind::Join => Some(CureKind::JoinOnHost),
        WriteKind::Recur if write.in_loop => Some(CureKind::JoinOnHost),
        WriteKind::Assign if value.contains("load(") => Some(CureKind::CheckpointOnHost),
        WriteKind::Assign if is_on_device && !write.in_loop => Some(CureKind::DataOnHost),
        _ => None,
    }
}

/// The cure for graphs that no backward pass needs: nothing is trained, or a module is not.
fn needless_graphs(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    let graphs = || kept.keepers.iter().filter(|keeper| keeps_graphs(keeper));
    let bytes: u64 = graphs().map(|keeper| keeper.graph_bytes).sum();
    let is_enough = bytes >= oom.shortfall_bytes && ratio(bytes, oom.allocated_bytes) >= MIN_SHARE;
    let keeper = graphs().next().filter(|_| is_enough)?;
    let kind = match (kept.optimizers?, kept.untrained.first()) {
        (0, _) => CureKind::NoGrad(model_call(oom)),
        (_, Some(module)) => CureKind::Freeze(module.clone()),
        (_, None) => return None,
    };
    Some(Cure { kind, keeper: Box::new(keeper.clone()) })
}

/// The outermost line that calls a module.
fn model_call(oom: &OomReport) -> Option<FrameReport> {
    let is_call = |frame: &FrameReport| forward_slashes(&frame.file).ends_with("torch/nn/modules/module.py");
    let call = oom.frames.iter().rposition(is_call)?;
    oom.frames.get(call + 1).cloned()
}
